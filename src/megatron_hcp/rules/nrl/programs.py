"""NeMo-RL: what one of its training programs refuses."""

from __future__ import annotations

from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import NEMO_RL_DPO
from megatron_hcp.rules.view import View

_PACKED = "policy.sequence_packing.enabled=true policy.dynamic_batching.enabled=false"
_SWITCHES = {
    "sequence_packing": "policy.sequence_packing.enabled",
    "dynamic_batching": "policy.dynamic_batching.enabled",
}


def _prefers_directly(v: View) -> bool:
    """Whether run_dpo.py trains, or the configuration has its section. Requests no fact."""
    return v.dialect == "nemo-rl" and (
        str(v.get("script")).endswith("run_dpo.py")
        or any(setting.key.startswith("dpo.") for setting in v.launch.reading.settings)
    )


@rule(
    "NRL011",
    "error crash init",
    source=(
        NEMO_RL_DPO.says("setup", "Sequence packing is currently not supported with DPO.", ">=0.3"),
        NEMO_RL_DPO.says("setup", "Dynamic batching is currently not supported with DPO.", ">=0.3"),
    ),
    applies=_prefers_directly,
    good=Example("nemo-rl", f"dpo.max_num_steps=10 {_PACKED.replace('=true', '=false')}"),
    bad=Example("nemo-rl", f"dpo.max_num_steps=10 {_PACKED}"),
)
def preferences_are_neither_packed_nor_sorted(v: View) -> Problem | None:
    """Direct preference optimization has neither packing nor dynamic batching.

    Its batches hold pairs of a chosen and a rejected answer; setup() asserts that nothing rearranges them. Megatron's
    context parallelism in NeMo-RL needs packing, so this program has none.
    """
    on = [name for name in _SWITCHES if v[name]]
    if not on:
        return None
    return Problem(
        message="NeMo-RL's DPO takes its batches as they are: start-up fails with an assertion",
        found=" and ".join(_SWITCHES[name] for name in on),
        wanted="neither packing nor dynamic batching",
        facts=tuple(on),
        fixes=(Fix(dict.fromkeys(on, False), "rows of one sequence, in their order"),),
    )
