"""What loading a checkpoint says that does not fit the model, or is not there."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, fault

CHECKPOINTS: tuple[Signature, ...] = (
    fault(
        "checkpoint-mismatch",
        r"Error\(s\) in loading state_dict for|(?:Missing|Unexpected) key\(s\) in state_dict|"
        r": copying a param with shape|"
        r"Cannot merge two lists with different lengths|Global shape mismatch for loaded|"
        r"(?:Missing|Unexpected) keys? (?:not found )?in (?:the )?(?:loaded |sharded )?(?:checkpoint|state[ _]dict)|"
        r"argument value from the checkpoint|not found in (?:the )?checkpoint|from model not in state dict|"
        r"^KeyError: .{0,200}not (?:found )?in (?:the )?state_?dict|Missing key in checkpoint state_dict|"
        r"^(?:[A-Za-z_]\w*\.)*\w{1,40}(?:Error|Exception): .{0,200}?\bcheckpoint\b.{0,200}?"
        r"\b(?:not (?:equal|match|compatible)|mismatch|differ|but (?:the |got )?(?:current )?(?:world|model|size))|"
        r"^(?:[A-Za-z_]\w*\.)*\w{1,40}(?:Error|Exception): .{0,200}?\b(?:mismatch|not match)\b.{0,100}?\bcheckpoint\b",
        "the checkpoint does not match the model: it was written with other sizes, another layout, or another version",
        "compare the model's sizes, its layer types and the versions (Transformer Engine, megatron-core) with those of "
        "the run that wrote the checkpoint",
        "keys that end in _extra_state: load without strict (--dist-ckpt-strictness log_all)",
        tokens=(ERROR, b": copying a param with shape"),
    ),
    fault(
        "checkpoint-key",
        r"^KeyError: '(?P<key>state|optimizer|model|module|model0|param_groups|param_state|opt_param_scheduler|"
        r"rng_state|iteration|total_iters|args|checkpoint_version|lr_scheduler|content_metadata)'$",
        "the checkpoint lacks a part that the program expects, or has it in another form: {key}",
        "was it saved with the same optimizer and the same --ckpt-format?",
        context=r"load_(?:checkpoint|state_dict|base_checkpoint)",
    ),
    fault(
        "checkpoint-write",
        r"PytorchStreamWriter failed writing|\bunexpected pos \d+ vs \d+|basic_ios::clear: iostream error",
        "a checkpoint could not be written: its file system is full, over its quota, or failed",
        "df -h, df -i, ulimit -f and the quota of the checkpoint folder on {node}; what is written is incomplete",
    ),
    fault(
        "checkpoint-format",
        r"is not a distributed checkpoint|[Uu]nknown checkpoint format|checkpoint format .{1,80} not supported|"
        r"invalid load key|PytorchStreamReader failed|[Cc]heckpoint versions? do(?:es)? not match|"
        r"Unsupported global strategy|Weights only load failed|Cannot load .{0,60}checkpoint into|"
        r"Error while deserializing header|HeaderTooLarge|MetadataIncompleteBuffer",
        "the checkpoint is incomplete, or not in a format that the program reads",
        "convert it, or name its format (--ckpt-format, --use-dist-ckpt); did the run that wrote it end "
        "during the save?",
        tokens=(ERROR, b"xception: "),
    ),
    fault(
        "file-cut",
        r"^EOFError: (?:Ran out of input|Compressed file)|UnpicklingError: |BadZipFile: |"
        r"unexpected EOF, expected \d+ more bytes|failed finding central directory",
        "a file being loaded is empty, truncated, or of another kind: data, a checkpoint or a cache",
        "ls -l shows its size; fetch it again, or load an earlier checkpoint",
        tokens=(ERROR, b"BadZipFile: ", b"unexpected EOF"),
        role="general",
    ),
    fault(
        "checkpoint-missing",
        r"FileNotFoundError: (?:(?!FileNotFoundError: ).)*?(?:checkpoint|ckpt|iter_)|"
        r"Checkpoint directory (?:(?!Checkpoint directory).)*? does not exist",
        "a checkpoint path does not exist on this node",
        "hcp check {launch} --select SLURM005,SLURM012",
        tokens=(ERROR, b"xception: "),
    ),
)
