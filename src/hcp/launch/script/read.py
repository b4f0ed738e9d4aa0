"""Launches inside shell scripts and sbatch files. The script is parsed and followed, never run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hcp.bash.value import Unseen
from hcp.core.errors import HcpError, UnrecognisedError
from hcp.core.numbers import whole_number
from hcp.launch.dialects import WANTED, can_be, dialect_of_keys, not_supported
from hcp.launch.fact import ALONE, COMMAND_LINES, Beside, Dialect, Fact, Reading, Setting
from hcp.launch.facts.elsewhere import taken_from_elsewhere
from hcp.launch.facts.known_keys import is_known
from hcp.launch.facts.table import index_of
from hcp.launch.foreign import of_keys, of_options, of_program, of_tools, sets_ascend
from hcp.launch.recipes.named import recipe_of_options
from hcp.launch.script.arguments import argv_of, why_hidden
from hcp.launch.script.detect import lost_end
from hcp.launch.script.facts import facts_of, is_parallel
from hcp.launch.script.flags import flag_names, flags_of, location_of, overrides_of
from hcp.launch.script.follow import MAX_LAUNCHES, Followed, follow
from hcp.launch.script.frameworks import framework_of, framework_reading, trained_by_fsdp
from hcp.launch.script.several import MAX_JUDGED, Training, judged, several
from hcp.launch.script.started import Launched
from hcp.launch.words.overrides import in_script, reading_of_words
from hcp.launch.words.settings import Word

_VERL = re.compile(r"(^|[./])verl[./]|main_(ppo|dapo|grpo|generation)|(^|\.)(fully_async|one_step_off)")
_BRIDGE = re.compile(
    r"(^|/)(run_recipe|run_script|setup_experiment|bootstrap|launch_with_nemo_run|04_launch_slurm_with_nemo_run)\.py$"
    r"|[Mm]egatron[._-]?[Bb]ridge(?!.*(^|/)(convert|prepare|import|export)_\w+\.py$)"
)
_MLM = re.compile(r"(^|/)(pretrain|finetune|train)\w*\.py$")
_MEGATRON = re.compile(r"(^|/)(pretrain\w*|train_rl)\.py$")
"""Megatron-LM's own programs: whatever their arguments are, they form its command line."""
_VARIANTS: dict[Dialect, Dialect] = {"bridge": "bridge-provider"}
_CORE = {"num_layers", "hidden_size", "num_attention_heads", "use_mcore_models"}
_BRIDGE_FLAGS = {
    "tensor_model_parallel_size": "model.tensor_model_parallel_size",
    "tp": "model.tensor_model_parallel_size",
    "pipeline_model_parallel_size": "model.pipeline_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "context_parallel_size": "model.context_parallel_size",
    "cp": "model.context_parallel_size",
    "virtual_pipeline_model_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size": "model.expert_model_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "expert_tensor_parallel_size": "model.expert_tensor_parallel_size",
    "et": "model.expert_tensor_parallel_size",
    "num_layers": "model.num_layers",
    "hidden_size": "model.hidden_size",
    "num_moe_experts": "model.num_moe_experts",
    "seq_length": "model.seq_length",
    "sl": "model.seq_length",
    "micro_batch_size": "train.micro_batch_size",
    "mb": "train.micro_batch_size",
    "global_batch_size": "train.global_batch_size",
    "gb": "train.global_batch_size",
    "cuda_graph_impl": "model.cuda_graph_impl",
}
"""What the flags of Bridge's own training scripts set."""


def read_shell(
    text: str, target: str, forced_dialect: Dialect | None = None, beside: Beside = ALONE, ordinal: int = -1
) -> Reading:
    """One launch of a script: the training command with that number, as in `read_launches`.

    Without a number it is the last training command that says how the model is split, else the last one.

    Raises:
        HcpError: no training command, another framework's, or a text that is too long or binary.
    """
    script = follow(text, target, beside)
    found = trainings(script, text, target, forced_dialect)
    if ordinal >= 0:
        found = judged(found)
        return reading_of(script, found[min(ordinal, len(found) - 1)], text, target)._replace(ordinal=ordinal)
    split = [training for training in found if training.splits]
    chosen = (split or found)[-1]
    notes = []
    if len(found) > 1:
        line = location_of(chosen.launched.started.span).line
        which = "the last that says how the model is split" if split else "the last one"
        notes.append(f"{len(found)} training commands; this is {which}, in line {line}")
    return reading_of(script, chosen, text, target, notes)


def read_launches(
    text: str, target: str, forced_dialect: Dialect | None = None, beside: Beside = ALONE
) -> tuple[Reading, ...]:
    """Every launch of a script, in start order; those that are read identically count as one.

    Raises:
        HcpError: as `read_shell`, or more launches than are checked.
    """
    script = follow(text, target, beside)
    found = judged(trainings(script, text, target, forced_dialect))
    if len(script.launches) >= MAX_LAUNCHES or len(found) > MAX_JUDGED:
        raise HcpError(
            f"{target} starts {len(script.launches)} programs or more; wanted a script with at most {MAX_JUDGED} "
            f"launches; put those to be checked into separate scripts"
        )
    if len(found) == 1:
        return (reading_of(script, found[0], text, target),)
    return several(
        [reading_of(script, one, text, target)._replace(ordinal=number) for number, one in enumerate(found)],
        [location_of(one.launched.started.span) for one in found],
    )


def trainings(script: Followed, text: str, target: str, forced: Dialect | None) -> list[Training]:
    """The training commands of a followed script, each with its dialect."""
    found: list[Training] = []
    untold: list[Training] = []
    name: str | None = None
    other: tuple[Dialect, int] | None = None
    for launched in script.launches:
        if _is_hcp(launched):
            continue
        names = flag_names(launched.started.arguments)
        dialect = framework_of(launched, names)
        foreign = None if dialect else _foreign(launched, names)
        if foreign is not None:
            name = name or foreign
            continue
        dialect = dialect or _dialect(launched, names)
        if dialect == "mlm" and sets_ascend(text):
            name = name or "a MindSpeed launch (it sets variables for Ascend devices)"
            continue
        if dialect is not None and forced in (None, dialect, _VARIANTS.get(dialect)):
            found.append(Training(launched, forced or dialect, is_parallel(names)))
        elif forced is not None and _may_be(forced, dialect, launched, names):
            untold.append(Training(launched, forced, False))
        elif dialect is not None:
            other = other or (dialect, location_of(launched.started.span).line)
    name = name or (of_tools(text) if not found else None)
    if not found and name is None:
        found = untold
    if not found:
        if name is not None:
            raise not_supported(target, name)
        if other is not None:
            raise HcpError(
                f"{target} holds a launch of the dialect {other[0]}, in line {other[1]}; wanted one of {forced}, as "
                f"--dialect says; omit --dialect"
            )
        if script.walker.is_cut_short:
            raise HcpError(
                f"{target}: {next(note for note in script.walker.notes if 'too long' in note)}, and no training "
                f"command precedes it; {WANTED}; give a shorter script, or its command line after --"
            )
        others = f" ({len(script.launches)} other Python command(s))" if script.launches else ""
        if script.unread:
            raise HcpError(f"{target} has no training command{others}, and {script.unread[0]}")
        if (lost := lost_end(script.script, target)) is not None:
            raise lost
        wanted = WANTED if forced is None else f"wanted a launch of the dialect {forced}"
        raise UnrecognisedError(
            f"{target} has no training command{others}; {wanted} (torchrun, srun python, python -m …); "
            "give the script that starts the training"
        )
    return found


def _dialect(launched: Launched, names: set[str]) -> Dialect | None:
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
        return "mlm"
    unseen = any(isinstance(item, Unseen) for item in launched.started.arguments)
    if unseen and _MEGATRON.search(script):
        return "mlm"
    return "mlm" if _MLM.search(script) and flags & set(index_of("mlm")) else None


def _is_hcp(launched: Launched) -> bool:
    """`python -m hcp check … -- LAUNCH` in a job that checks itself: it starts no training."""
    script = launched.started.script or ""
    return launched.started.is_module and (script == "hcp" or script.startswith("hcp."))


def _foreign(launched: Launched, names: set[str]) -> str | None:
    """The framework that a command belongs to, by its program, its options or its keys."""
    if trained_by_fsdp(launched):
        return "a slime or miles launch trained with FSDP"
    return (
        of_program(launched.started.script or "")
        or of_options(name[2:] for name in names if name.startswith("--"))
        or of_keys({name for name in names if not name.startswith("--")})
    )


def _may_be(forced: Dialect, told: Dialect | None, launched: Launched, names: set[str]) -> bool:
    """Whether a command can be in the forced dialect: it names an option or key of it, or nothing that can be read.

    A custom program may use Megatron-LM's names for a few options and still be a Bridge launch.
    """
    flags = {name[2:] for name in names if name.startswith("--")}
    if told in ("verl", "bridge"):
        return False
    if told == "mlm" and sum(is_known("mlm", flag) for flag in flags - set(_BRIDGE_FLAGS)) > 3:
        return False
    program = launched.started.script or ""
    trains = not program or _MLM.search(program) is not None
    if not names:
        return trains and any(isinstance(item, Unseen) for item in launched.started.arguments)
    if forced in COMMAND_LINES:
        return (forced == "mlm" and len(flags & set(index_of("mlm"))) > 2) or _MEGATRON.search(program) is not None
    if forced != "verl" and trains and is_parallel(names):
        return True
    return can_be(forced, [name for name in names if not name.startswith("-")])


def reading_of(script: Followed, training: Training, text: str, target: str, notes: Sequence[str] = ()) -> Reading:
    launched, dialect, _ = training
    facts = facts_of(launched, dialect)
    items = launched.started.arguments
    unknown = dict(facts.unknown)
    if dialect in ("ms-swift", "nemo-rl"):
        reading, unknown, unseen = framework_reading(dialect, target, items, facts, script.files.beside)
    elif dialect in COMMAND_LINES:
        gathered = flags_of(items)
        elsewhere, unseen = taken_from_elsewhere(gathered.settings)
        settings, unseen = gathered.settings, gathered.unseen or unseen
        unknown |= {**elsewhere, **gathered.unknown}
        reading = Reading(dialect, target, "shell", settings)
    else:
        overrides = overrides_of(items)
        unseen = overrides.unseen
        words = [word for word in overrides.words if not word.text.startswith("-")]
        if dialect != "verl":
            flags = flags_of(items, short=True)
            words = [*_bridge_words(flags.settings), *words]
            unknown |= {_BRIDGE_FLAGS[key]: why for key, why in flags.unknown.items() if key in _BRIDGE_FLAGS}
            _bridge_facts(facts.known, flags.settings)
            recipe = recipe_of_options(flags.settings)
            if recipe is not None:
                facts.known["recipe"] = Fact(recipe, "launch")
        else:
            # The keys present determine the backend and the trainer, even if a value can't be read.
            words = [*overrides.words, *(Word(f"{key}=???") for key in overrides.unknown)]
            if unseen is not None:
                words.append(Word(f"--hidden-words={unseen}"))
        unknown |= overrides.unknown
        reading = reading_of_words(dialect, words, target)
    said = [*notes, *([f"whether this command runs {launched.doubt}"] if launched.doubt else []), *script.walker.notes]
    if script.walker.used_arguments:
        said.append("the script's own arguments ($1, $@) aren't known; it is read as if started without any")
    if "\r\n" in text:
        said.append("the file has Windows line endings (CRLF): bash doesn't run it the way it looks")
    reading = reading._replace(
        form="shell",
        acceptances=script.acceptances(),
        text=text,
        beside=script.files.beside,
        notes=(*reading.notes, *said),
        argv=argv_of(items),
        hidden_argument=why_hidden(items),
    )
    return in_script(reading, facts.known, unknown, unseen)


def _bridge_words(settings: Sequence[Setting]) -> list[Word]:
    return [
        Word(f"{_BRIDGE_FLAGS[setting.key]}={setting.value[0]}", setting.location)
        for setting in settings
        if setting.key in _BRIDGE_FLAGS and len(setting.value) == 1
    ]


def _bridge_facts(facts: dict[str, Fact], settings: Sequence[Setting]) -> None:
    names = {
        "recipe": "model_name",
        "model": "model_name",
        "model_recipe_name": "model_name",
        "num_gpus": "world_size",
        "nodes": "nodes",
        "num_nodes": "nodes",
        "devices": "gpus_per_node",
        "gpus_per_node": "gpus_per_node",
    }
    for setting in settings:
        name = names.get(setting.key)
        if name is None or len(setting.value) != 1:
            continue
        word: str = setting.value[0]
        if name == "model_name":
            facts[name] = Fact(word, "launch", setting.location, "--" + setting.key)
        elif word.isdecimal() and (number := whole_number(word, 9)):
            facts[name] = Fact(number, "launch", setting.location, "--" + setting.key)
