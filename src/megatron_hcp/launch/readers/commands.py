"""Which dialect a command of a script is in, told by its program, its options and its keys."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Unseen
from megatron_hcp.launch.dialects.bridge.options import BRIDGE_FLAGS
from megatron_hcp.launch.dialects.foreign import of_keys, of_options, of_program
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.known_keys import is_known
from megatron_hcp.launch.dialects.mlm.elsewhere import OWN_PROGRAMS
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.dialects.which import can_be, dialect_of_keys
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.forms.script.facts import is_parallel
from megatron_hcp.launch.forms.script.started import Launched
from megatron_hcp.launch.readers.frameworks import trained_by_fsdp

_VERL = re.compile(r"(^|[./])verl[./]|main_(ppo|dapo|generation)|(^|\.)(fully_async|one_step_off)")
_BRIDGE = re.compile(
    r"(^|/)(run_recipe|run_script|setup_experiment|bootstrap|launch_with_nemo_run|04_launch_slurm_with_nemo_run)\.py$"
    r"|[Mm]egatron[._-]?[Bb]ridge(?!.*(^|/)(convert|prepare|import|export)_\w+\.py$)"
)
_MLM = re.compile(r"(^|/)(pretrain|finetune|train)\w*\.py$")
_MEGATRON = re.compile(r"(^|/)(pretrain\w*|train_rl)\.py$")
"""Megatron-LM's own programs: whatever their arguments are, they form its command line."""
_CORE = {"num_layers", "hidden_size", "num_attention_heads", "use_mcore_models"}


def dialect_of(launched: Launched, names: set[str]) -> Dialect | None:
    """The dialect of a command; None if it isn't a training command that can be read."""
    script = launched.started.script or ""
    keys = [name for name in names if not name.startswith("--")]
    by_keys = dialect_of_keys(keys)
    if _VERL.search(script) or by_keys == "verl":
        return "verl" if keys or "main_" in script or "sft_trainer" in script else None
    if by_keys == "bridge" or _BRIDGE.search(script.rpartition("Megatron-LM/")[2]):
        return "bridge"
    flags = {name[2:] for name in names if name.startswith("--")}
    if flags & _CORE or any(is_parallel({flag}) for flag in flags):
        return "mlm" if _takes_megatrons_options(script, flags) else None
    unseen = any(isinstance(item, Unseen) for item in launched.started.arguments)
    if unseen and _MEGATRON.search(script):
        return "mlm"
    return "mlm" if _MLM.search(script) and flags & set(index_of("mlm")) else None


def _takes_megatrons_options(script: str, flags: set[str]) -> bool:
    """Whether the options may be Megatron-LM's: a program with more of its own has a parser of its own."""
    return (
        not script
        or bool(OWN_PROGRAMS.search(script))
        or 2 * sum(is_known("mlm", flag) for flag in flags) >= len(flags)
    )


def foreign_name(launched: Launched, names: set[str]) -> str | None:
    """The framework that a command belongs to, by its program, its options or its keys."""
    if trained_by_fsdp(launched):
        return "a slime or miles launch trained with FSDP"
    return (
        of_program(launched.started.script or "")
        or of_options(name[2:] for name in names if name.startswith("--"))
        or of_keys({name for name in names if not name.startswith("--")})
    )


def may_be(forced: Dialect, told: Dialect | None, launched: Launched, names: set[str]) -> bool:
    """Whether a command can be in the forced dialect: it names an option or key of it, or nothing that can be read.

    A custom program may use Megatron-LM's names for a few options and still be a Bridge launch.
    """
    flags = {name[2:] for name in names if name.startswith("--")}
    if told in ("verl", "bridge"):
        return False
    if told == "mlm" and sum(is_known("mlm", flag) for flag in flags - set(BRIDGE_FLAGS)) > 3:
        return False
    program = launched.started.script or ""
    trains = not program or _MLM.search(program) is not None
    if not names:
        return trains and any(isinstance(item, Unseen) for item in launched.started.arguments)
    if FRAMEWORKS[forced].is_command_line:
        return (forced == "mlm" and len(flags & set(index_of("mlm"))) > 2) or _MEGATRON.search(program) is not None
    if forced != "verl" and trains and is_parallel(names):
        return True
    return can_be(forced, [name for name in names if not name.startswith("-")])
