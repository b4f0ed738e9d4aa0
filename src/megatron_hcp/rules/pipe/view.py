"""Helpers for rules about pipelines: whether there is one, how its stages are described, how many layers it splits."""

from __future__ import annotations

import re

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.rules.cp.view import nearest_divisors, over
from megatron_hcp.rules.rule import Fix, Stage
from megatron_hcp.rules.view import Unknown, View


def is_pipelined(v: View) -> bool:
    """Whether there is more than one stage. Requests no fact."""
    return (v.get("pp") or 1) > 1


def has_alike_stages(v: View) -> bool:
    """Whether all stages hold the same number of layers: nothing describes the stages individually."""
    return not given_stages(v) and not describes_each_stage(v)


def given_stages(v: View) -> dict[str, int]:
    """The given first- and last-stage sizes in layers, by name. Requests no fact."""
    sizes = {"first": v.get("first_stage_layers"), "last": v.get("last_stage_layers")}
    return {name: size for name, size in sizes.items() if size is not None}


def describes_each_stage(v: View) -> bool:
    """Whether a layout, or a hybrid pattern with `|`, says what each stage holds."""
    return bool(v.get("pipeline_layout")) or "|" in main_pattern(v)


def main_pattern(v: View) -> str:
    """The hybrid pattern of the model itself, without that of multi-token prediction; "" without a known pattern."""
    return str(v.get("hybrid_pattern")).partition("/")[0]


def split_layers(v: View) -> int:
    """What is split evenly over the stages: the layers, and the embedding and the loss if they count as layers."""
    return int(v.num_layers) + bool(v.get("embedding_counts")) + bool(v.get("loss_counts"))


def said_layers(v: View) -> str:
    """The number of layers in words, with what else is counted.

    "30 layers, the embedding and the loss counted"
    """
    counted = [
        name for name, fact in (("the embedding", "embedding_counts"), ("the loss", "loss_counts")) if v.get(fact)
    ]
    return f"{split_layers(v)} layers" + (f", {' and '.join(counted)} counted" if counted else "")


def pp_fixes(v: View, layers: int) -> tuple[Fix, ...]:
    """Pipeline sizes near the launch's that divide the layers and the ranks."""
    ranks = v.get("world_size")
    sizes = nearest_divisors(layers, int(v.pp), lambda size: ranks is None or ranks % size == 0)
    return tuple(Fix({"pp": size}, over("pipeline", size)) for size in sizes)


def stage_fixes(v: View) -> tuple[Fix, ...]:
    """A size of the last or the first stage, near an even share, that leaves a multiple of the other stages.

    A given size is changed as little as that takes. None where the embedding or the loss counts as a layer: the two
    exclude each other.
    """
    if v.get("embedding_counts") or v.get("loss_counts"):
        return ()
    given, fixes = given_stages(v), []
    for name in ("last", "first"):
        others = [size for other, size in given.items() if other != name]
        size = _stage_size(v.num_layers - sum(others), v.pp - len(others), v.get("vpp") or 1, given.get(name, 0))
        if size is not None:
            fixes.append(Fix({f"{name}_stage_layers": size}, f"{size} layer{'s' * (size > 1)} in the {name} stage"))
        elif len(given) == v.pp > 1:
            fixes.append(Fix({f"{name}_stage_layers": None}, f"the {name} stage holds the rest"))
    return tuple(fixes)


def _stage_size(layers: int, stages: int, chunks: int, given: int) -> int | None:
    """The layers of one stage so that the other stages share the rest evenly; None if a stage would hold too many.

    Of two sizes with equally long stages the smaller: the first stage has the embedding, the last the loss.
    """
    if stages < 2:
        return None
    share, step = layers // stages, (stages - 1) * chunks
    near = given if 0 < given <= 2 * share else share
    below = near - (near - layers) % step
    longest = {size: max(size, (layers - size) // (stages - 1)) for size in (below, below + step)}
    sizes = [size for size in longest if 0 < size < layers and size % chunks == 0 and longest[size] <= 2 * share]
    return min(sizes, key=lambda size: (longest[size], size), default=None)


def stops_at(v: View) -> Stage:
    """Where start-up fails: Megatron-LM's command line checks the pipeline before anything is built."""
    return "config" if v.dialect == "mlm" else "init"


class StageLayout(NamedTuple):
    """A custom layout: one text of `E` (embedding), `t` (layer), `m` (multi-token prediction), `L` (loss) per stage.

    `written` is the launch's text, with its repetitions; a list in a configuration is expanded.
    """

    stages: tuple[str, ...]
    written: str

    @property
    def flat(self) -> str:
        return "".join(self.stages)


_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_LONGEST = 10_000


def layout_of(v: View) -> StageLayout:
    """The custom layout of the launch.

    Raises:
        Unknown: as `stages_of`.
    """
    return stages_of(v.pipeline_layout)


def stages_of(written: object) -> StageLayout:
    """A custom layout as it is written: a text, or a list for each stage.

    Raises:
        Unknown: it is written in a form that isn't supported here, or with letters that upstream doesn't know.
    """
    if isinstance(written, str):
        return StageLayout(tuple(_unrolled(written).split("|")), written)
    if isinstance(written, list | tuple) and all(isinstance(stage, list | tuple) for stage in written):
        names = [[str(layer).strip().lower() for layer in stage] for stage in written]
        if all(name in _LETTERS for stage in names for name in stage):
            stages = tuple("".join(_LETTERS[name] for name in stage) for stage in names)
            return StageLayout(stages, "|".join(stages))
    raise Unknown("pipeline_layout")


_PART_TIMES, _ONE_TIMES = re.compile(r"\(([^()]+)\)\*(\d{1,4})"), re.compile(r"(.)\*(\d{1,4})")


def _repeated(pattern: re.Pattern[str], text: str) -> str:
    """The text with each match repeated as often as it says."""
    if sum(len(match[1]) * int(match[2]) for match in pattern.finditer(text)) > _LONGEST:
        raise Unknown("pipeline_layout")
    return pattern.sub(lambda match: match[1] * int(match[2]), text)


def _unrolled(text: str) -> str:
    """The layout without commas and repetitions: first (…)*n, then x*n, each once, as upstream unrolls them."""
    text = _repeated(_ONE_TIMES, _repeated(_PART_TIMES, text.replace(",", "")))
    if not set(text) <= set("EtmL|"):
        raise Unknown("pipeline_layout")
    return text
