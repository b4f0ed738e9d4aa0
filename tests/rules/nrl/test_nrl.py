"""NRL rules: what NeMo-RL asks of its configuration, as tables. The verdicts are those of its own asserts."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

M = "policy.megatron_cfg."
DP = "policy.dtensor_cfg."


def words(**changed: object) -> str:
    """A sound configuration with some of its settings at other values; None leaves one out."""
    settings: dict[str, tuple[str, object]] = {
        "megatron": (f"{M}enabled", "true"),
        "dtensor": (f"{DP}enabled", "false"),
        "tp": (f"{M}tensor_model_parallel_size", 1),
        "pp": (f"{M}pipeline_model_parallel_size", 1),
        "cp": (f"{M}context_parallel_size", 4),
        "sp": (f"{M}sequence_parallel", "false"),
        "fused": (f"{M}use_fused_linear_logprobs", "false"),
        "packing": ("policy.sequence_packing.enabled", "true"),
        "dynamic": ("policy.dynamic_batching.enabled", "false"),
        "multiple": ("policy.make_sequence_length_divisible_by", 8),
        "longest": ("policy.max_total_sequence_length", 4096),
        "train": ("policy.sequence_packing.train_mb_tokens", 4096),
        "logprob": ("policy.sequence_packing.logprob_mb_tokens", 8192),
        "batch": ("policy.train_global_batch_size", 64),
        "nodes": ("cluster.num_nodes", 2),
        "gpus": ("cluster.gpus_per_node", 8),
        "colocated": ("policy.generation.colocated.enabled", "true"),
        "gen_nodes": ("policy.generation.colocated.resources.num_nodes", "null"),
        "gen_gpus": ("policy.generation.colocated.resources.gpus_per_node", "null"),
    }
    values = {name: changed.get(name, value) for name, (_, value) in settings.items()}
    return " ".join(f"{key}={values[name]}" for name, (key, _) in settings.items() if values[name] is not None)


def dtensor(cp: int, packing: str) -> str:
    sizes = f"{DP}context_parallel_size={cp} {DP}tensor_parallel_size=1 {DP}sequence_parallel=false "
    return f"{sizes}{DP}enabled=true {M}enabled=false policy.sequence_packing.enabled={packing} {BATCHES}"


OVERRIDE = f"{M}model_overrides.cp_comm_type=a2a"
BATCHES = "policy.dynamic_batching.enabled=false"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("NRL001", "nemo-rl", words(), "", "all:"),
    # data.py: minimum_pad_factor is 2 CP where CP > 1, times TP where TP > 1 and sequence_parallel.
    ("NRL001", "nemo-rl", words(multiple=4), "", "all: NRL001"),
    ("NRL001", "nemo-rl", words(multiple=16), "", "all:"),
    ("NRL001", "nemo-rl", words(tp=2, sp="true"), "", "all: NRL001"),
    ("NRL001", "nemo-rl", words(tp=2, sp="true", multiple=16), "", "all:"),
    ("NRL001", "nemo-rl", words(tp=2), "", "all:"),
    ("NRL001", "nemo-rl", words(cp=1, multiple=1), "", "all:"),
    ("NRL001", "nemo-rl", words(cp=1, tp=2, sp="true", multiple=1), "", "all: NRL001"),
    ("NRL001", "nemo-rl", words(multiple=4), "nemo_rl=0.6.0", "error crash first-forward"),
    ("NRL001", "nemo-rl", words(multiple=4), "nemo_rl=0.5.0", "not concerned"),  # computed there
    ("NRL001", "nemo-rl", words(multiple=None), "", "needs sequence_multiple"),
    ("NRL001", "nemo-rl", words(packing="false", cp=1, multiple=1), "", "not concerned"),
    ("NRL001", "nemo-rl", words(megatron=None, dtensor=None, multiple=4), "", "needs strategy"),
    ("NRL002", "nemo-rl", words(packing="false"), "", "all: NRL002"),
    ("NRL002", "nemo-rl", words(packing="false", cp=1), "", "all:"),
    ("NRL002", "nemo-rl", dtensor(1, "false"), "", "not concerned"),
    ("NRL003", "nemo-rl", words(fused="true"), "", "all: NRL003"),
    ("NRL003", "nemo-rl", words(fused="true", cp=1), "", "all:"),
    ("NRL003", "nemo-rl", words(fused=None), "", "needs fused_linear_logprobs"),
    ("NRL004", "nemo-rl", words(dtensor="true"), "", "all: NRL004"),
    ("NRL004", "nemo-rl", dtensor(1, "false"), "", "not concerned"),
    ("NRL005", "nemo-rl", words(dynamic="true"), "", "all: NRL005"),
    ("NRL005", "nemo-rl", words(dynamic="true", packing="false", cp=1), "", "all:"),
    ("NRL006", "nemo-rl", words(dynamic="true", packing="false", cp=1, pp=2), "", "all: NRL006"),
    ("NRL006", "nemo-rl", words(pp=2), "", "not concerned"),
    ("NRL007", "nemo-rl", words(train=4095), "", "all: NRL007"),
    ("NRL007", "nemo-rl", words(logprob=2048), "", "warning crash training"),
    ("NRL007", "nemo-rl", words(longest=4097), "", "warning crash training"),  # 4104 after the padding
    ("NRL007", "nemo-rl", words(longest=4097, train=4104), "", "fine"),
    ("NRL008", "nemo-rl", dtensor(2, "true"), "", "all: NRL008"),
    ("NRL008", "nemo-rl", dtensor(2, "false"), "", "all:"),
    ("NRL008", "nemo-rl", dtensor(1, "true"), "", "all:"),
    ("NRL008", "nemo-rl", words(), "", "not concerned"),
    ("NRL009", "nemo-rl", words(batch=6), "", "all: NRL009"),  # 16 GPUs at CP 4: DP 4
    ("NRL009", "nemo-rl", words(batch=6, cp=8, multiple=16), "", "all:"),
    ("NRL009", "nemo-rl", words(batch=6, nodes=3), "", "all:"),  # DP 6
    # grpo.py setup: a generation of its own takes whole nodes, and on one node some of its GPUs.
    ("NRL009", "nemo-rl", words(batch=6, colocated="false", gen_nodes=1, gen_gpus=8), "", "all:"),  # DP 2
    ("NRL009", "nemo-rl", words(batch=3, nodes=1, colocated="false", gen_gpus=4), "", "all:"),  # DP 1
    ("NRL009", "nemo-rl", words(batch=3, nodes=1), "", "all: NRL009"),  # DP 2
    ("NRL009", "nemo-rl", words(nodes=None), "", "needs world_size"),
    ("NRL009", "mlm", "--global-batch-size 3", "", "not concerned"),
    # v0.6.0 and v0.7.0 have no word model_overrides; pull request 3535 came when main called itself 0.6.0.
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "", "needs nemo_rl"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.5.0", "error silent never"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.6.0", "warning silent never"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.6.1", "warning silent never"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.7.0", "error silent never"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.7.2", "error silent never"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.8.0", "fine"),
    ("NRL010", "nemo-rl", words(), "nemo_rl=0.7.0", "not concerned"),
    ("NRL010", "nemo-rl", f"{words()} {M}model_overrides={{}}", "nemo_rl=0.7.0", "not concerned"),
    ("NRL010", "nemo-rl", f"{dtensor(1, 'false')} {OVERRIDE}", "nemo_rl=0.7.0", "not concerned"),
    ("NRL010", "nemo-rl", f"{words(megatron=None, dtensor=None)} {OVERRIDE}", "nemo_rl=0.7.0", "needs strategy"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("NRL001", "nemo-rl", words(multiple=4), "", "found: make_sequence_length_divisible_by 4 at TP 1 and CP 4"),
    ("NRL001", "nemo-rl", words(tp=2, sp="true", multiple=4), "", "wanted: a multiple of 16"),
    ("NRL002", "nemo-rl", words(packing="false"), "", "found: at context_parallel_size 4"),
    ("NRL003", "nemo-rl", words(fused="true"), "", "found: use_fused_linear_logprobs at"),
    ("NRL004", "nemo-rl", words(dtensor="true"), "", "policy.dtensor_cfg.enabled"),
    ("NRL005", "nemo-rl", words(dynamic="true"), "", "policy.dynamic_batching.enabled and policy.sequence_packing"),
    ("NRL006", "nemo-rl", words(dynamic="true", packing="false", cp=1, pp=2), "", "pipeline_model_parallel_size 2"),
    ("NRL007", "nemo-rl", words(train=1024), "", "found: sequences of up to 4096 tokens, train_mb_tokens 1024"),
    ("NRL008", "nemo-rl", dtensor(2, "true"), "", "dtensor_cfg.context_parallel_size 2"),
    ("NRL009", "nemo-rl", words(batch=6), "", "found: policy.train_global_batch_size 6 at DP 4"),
    ("NRL010", "nemo-rl", f"{words()} {OVERRIDE}", "nemo_rl=0.7", "model_overrides.cp_comm_type with NeMo-RL 0.7"),
    (
        "NRL010",
        "nemo-rl",
        f"{words()} {OVERRIDE} {M}model_overrides.qk_clip=true",
        "nemo_rl=0.7",
        "model_overrides.cp_comm_type and 1 more with",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("NRL001", "nemo-rl", words(multiple=4), "", ("policy.make_sequence_length_divisible_by=8",)),
    (
        "NRL002",
        "nemo-rl",
        words(packing="false"),
        "",
        (
            "policy.sequence_packing.enabled=true policy.dynamic_batching.enabled=false",
            f"{M}context_parallel_size=1",
        ),
    ),
    ("NRL009", "nemo-rl", words(batch=6), "", ("policy.train_global_batch_size=8",)),
]
