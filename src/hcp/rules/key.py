"""Keys that are nearly, but not quite, ones that upstream knows."""

from __future__ import annotations

from hcp.launch.fact import Setting
from hcp.launch.facts.table import index_of
from hcp.rules.rule import Example, Problem, rule
from hcp.rules.upstream import MODEL_PARALLEL_CONFIG
from hcp.rules.view import View


def _near_misses(v: View) -> list[tuple[Setting, str]]:
    """(setting, the key that was meant), those first that other rules go by."""
    from hcp.launch.facts.known_keys import near_miss  # late: it reads a large file

    index = index_of(v.dialect, v.launch.reading.role)
    found = [
        (setting, meant)
        for setting in v.launch.reading.settings
        if setting.key not in index
        and (v.dialect == "mlm" or "." in setting.key)  # a section is never one word, such as `mode: pretrain`
        and (meant := near_miss(v.dialect, setting.key)) is not None
    ]
    return sorted(found, key=lambda pair: pair[1] not in index)


@rule(
    "KEY001",
    severity="warning",
    effect="silent",
    stage="never",
    source=(MODEL_PARALLEL_CONFIG.says("ModelParallelConfig", "hierarchical_context_parallel_sizes", ">=0.12"),),
    applies=lambda v: bool(v.launch.reading.settings),
    good=Example("mlm", "--seq-length 4096 --our-own-option 1"),
    bad=Example("mlm", "--seq-lenght 4096"),
)
def keys_are_spelled_correctly(v: View) -> Problem | None:
    """No key is one letter away from a known one.

    Megatron-LM's command line refuses an unknown option, after the job waited for its nodes. Overrides and config
    files may add keys, so there a slip of the pen means that the default holds and nobody says so. A singular
    hierarchical_context_parallel_size is the classic.
    """
    found = _near_misses(v)
    if not found:
        return None
    setting, meant = found[0]
    flags = v.dialect == "mlm"
    key, near = (f"--{name.replace('_', '-')}" if flags else name for name in (setting.key, meant))
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    decides = meant in index_of(v.dialect, v.launch.reading.role)
    return Problem(
        message="Megatron-LM stops at an option that it does not know"
        if flags
        else f"no upstream version knows this key, so {meant.rpartition('.')[2]} keeps another value",
        found=f"{key}{more}",
        wanted=near,
        facts=(setting.key,),
        severity="error" if decides else None,
        effect="crash" if flags else None,
        stage="config" if flags else None,
        location=setting.location,
    )


RULES = (keys_are_spelled_correctly,)
