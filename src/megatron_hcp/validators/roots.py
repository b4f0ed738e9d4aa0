"""Which functions of upstream's start-up are read, from which files, and in which order they run."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.validators.program import Unit


class Upstream(NamedTuple):
    """What is read of one upstream: functions with the files that may have them, and the unit that runs them."""

    repo: str
    version: str
    """The file that states the version."""
    functions: tuple[tuple[str, tuple[str, ...]], ...]
    calls: tuple[tuple[str, str, str], ...]
    """(file, function, what it calls): of these functions only that call is read, as the unit `FUNCTION.CALLED`."""
    options: tuple[str, str]
    """(file, function) that adds the options of its parser."""
    start: Unit


MEGATRON_LM = Upstream(
    repo="megatron-lm",
    version="megatron/core/package_info.py",
    functions=(
        ("validate_args", ("megatron/training/arguments.py",)),
        (
            "core_transformer_config_from_args",
            ("megatron/training/argument_utils.py", "megatron/training/arguments.py"),
        ),
    ),
    calls=(
        ("megatron/training/global_vars.py", "set_global_variables", "init_num_microbatches_calculator"),
        ("megatron/training/initialize.py", "_initialize_distributed", "initialize_model_parallel"),
    ),
    options=("megatron/training/arguments.py", "add_megatron_arguments"),
    start=Unit(
        "start",
        "def",
        ("args",),
        "",
        (
            "do validate_args(args, {'tokenizer_type': 'GPT2BPETokenizer'})",
            "do set_global_variables.init_num_microbatches_calculator(args)",
            "do _initialize_distributed.initialize_model_parallel(args)",
            "config = core_transformer_config_from_args(args)",
        ),
    ),
)
UPSTREAMS = (MEGATRON_LM,)
