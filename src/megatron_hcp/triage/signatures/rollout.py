"""What the inference engines (vLLM, SGLang) inside a reinforcement-learning job say."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, effect, fault

_ENGINE_LOG = "look for the first error of the engine's own processes (EngineCore, Scheduler), above this line"

ROLLOUT: tuple[Signature, ...] = (
    fault(
        "rollout-memory",
        r"Free memory on device .{0,100}is less than desired GPU memory utilization|"
        r"No available memory for the cache blocks|is larger than the (?:maximum number of tokens|available KV cache)|"
        r"Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static|"
        r"(?:GiB )?KV cache is needed, which is larger than|Memory pool end .{0,40}Not enough memory|"
        r"CUDA Error: out of memory at \S{0,100}cumem",
        "the rollout engine has too little GPU memory for its weights or KV cache",
        "does the trainer release its memory before the engine wakes (offload, sleep mode)? do other "
        "processes use the GPU? if not, raise gpu_memory_utilization (SGLang: --mem-fraction-static), or "
        "shorten the sequences",
    ),
    fault(
        "rollout-length",
        r"max_model_len \(\d+\) is greater than the derived max_model_len|"
        r"^\w{1,40}Error: .{0,80}(?:longer than|exceeds) the (?:maximum )?(?:model|context)",
        "the rollout engine was asked for longer sequences than the model supports",
        "max_prompt_length + max_response_length must not exceed max_position_embeddings (or set a RoPE scaling)",
    ),
    effect(
        "rollout-engine",
        r"Engine core initialization failed|EngineCore (?:failed to start|encountered a fatal error)|EngineDeadError|"
        r"(?:Scheduler|TokenizerManager|DetokenizerManager) hit an exception|Rank \d+ scheduler is dead|"
        r"Initialization failed\. Please see the error messages above|"
        r"Server process terminated unexpectedly|Server \d+ failed: [45]\d\d|server launch failed|"
        r"Engine core proc \S+ died unexpectedly|WorkerProc initialization failed|"
        r"[Ee]ngine (?:background task failed|iteration timed out|process failed to start|loop is not running)|"
        r"Background loop (?:has errored already|is stopped)|Received sigquit from a child proc",
        "the rollout engine (vLLM or SGLang) failed to start or died; these lines do not say why",
        _ENGINE_LOG,
        tokens=(
            ERROR,
            b"xception: ",
            b"background task",
            b"iteration timed out",
            b"EngineCore failed",
            b"died unexpectedly",
            b"sigquit",
        ),
    ),
    fault(
        "rollout-weights",
        r"Failed to update (?:parameter|weights?)\b(?P<text>.{0,300})|"
        r"[Ww]eights? (?:update|sync)\w* (?:\w+ )?failed(?P<text2>.{0,300})",
        "the rollout engine did not take over the trainer's weights{text}{text2}",
        "do the engine's model and its parallel sizes match the trainer's? does this version of the engine update "
        "this model's weights (quantized, mixture of experts)?",
        tokens=(ERROR, b"Failed to update ", b"failed"),
        role="general",
    ),
    fault(
        "nan-logits",
        r"probability tensor contains either .?inf",
        "the model's probabilities are not finite (nan or inf) where it samples: its weights or logits went bad before",
        "were the loss, the KL and the gradient norm finite in the steps before? do the engine and the trainer use "
        "the same precision, and did the last weight update succeed?",
        tokens=(b"probability tensor",),
        again="chance",
    ),
    fault(
        "service-unreachable",
        r"^(?!Retrying|.{0,200}(?:api\.wandb|HTTPSConnectionPool\(host='(?!localhost|\d))).*?(?:"
        r"HTTPS?ConnectionPool\((?P<where>host='[^']{1,200}', port=\d{1,5})\): (?:Max retries|Read timed)|"
        r"Cannot connect to host (?P<where2>\S{1,200})|server can't be reached at (?P<where3>\S{1,200})|"
        r"All connection attempts failed|ConnectError: \[Errno 111\]|Remote end closed connection without response|"
        r"ServerDisconnectedError)",
        "an HTTP server that the program calls does not answer ({where}) ({where2}) ({where3}): a reward, sandbox "
        "or inference server that did not start, ended, or is overloaded",
        "curl -sv that address from {node}; look for the first error of the server's own log, before this time",
        "is a proxy set (http_proxy)? add the nodes to no_proxy",
        tokens=(ERROR, b"ConnectionPool(host=", b"Cannot connect to host"),
        role="general",
        again="chance",
    ),
    fault(
        "service-waits",
        r"[Ss]erver is not up yet|[Ss]erver was not reached after \d+ seconds",
        "the job waits for an inference server that does not come up",
        "read the server's own log; does the job call the server's host and port?",
        tokens=(b"erver is not up yet", b"erver was not reached"),
        role="stall",
        again="chance",
        at_any_level=True,
    ),
)
