"""The facts that several frameworks share, by topic, and how to find them by a framework's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.facts.batches import BATCH_FACTS
from megatron_hcp.launch.facts.checkpoints import CHECKPOINT_FACTS
from megatron_hcp.launch.facts.data import DATA_FACTS
from megatron_hcp.launch.facts.groups import GROUP_FACTS
from megatron_hcp.launch.facts.loss import LOSS_FACTS
from megatron_hcp.launch.facts.model import MODEL_FACTS
from megatron_hcp.launch.facts.parallel import PARALLEL_FACTS
from megatron_hcp.launch.facts.recomputation import RECOMPUTATION_FACTS
from megatron_hcp.launch.facts.router import ROUTER_FACTS
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.facts.stages import STAGE_FACTS

TOPICS: tuple[FactSpec, ...] = (
    *PARALLEL_FACTS,
    *GROUP_FACTS,
    *STAGE_FACTS,
    *MODEL_FACTS,
    *ROUTER_FACTS,
    *RECOMPUTATION_FACTS,
    *DATA_FACTS,
    *CHECKPOINT_FACTS,
    *LOSS_FACTS,
    *BATCH_FACTS,
)
MODEL_NAMES = frozenset(spec.name for spec in (*MODEL_FACTS, *ROUTER_FACTS, *RECOMPUTATION_FACTS))
"""The facts of the model, its attention and its precision."""

KeysOf = Callable[[FactSpec, str], tuple[str, ...]]
"""(a fact, the role of a model) -> the keys that set it, the preferred one first."""


class Key(NamedTuple):
    """How a framework's key maps to a fact; `negated` for flags such as `--no-rope-fusion`."""

    fact: str
    negated: bool = False


def by_key(specs: Iterable[FactSpec], keys_of: KeysOf, role: str = "", negates: bool = False) -> dict[str, Key]:
    """The facts by their keys. `negates`: the framework has Megatron-LM's options that switch something off."""
    specs = tuple(specs)
    index = {key: Key(spec.name) for spec in specs for key in keys_of(spec, role)}
    return index | {key: Key(spec.name, True) for spec in specs for key in spec.mlm_not} if negates else index
