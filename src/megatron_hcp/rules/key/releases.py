"""Options that a release of ms-swift doesn't have."""

from __future__ import annotations

from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.last_read import of_package
from megatron_hcp.launch.facts.option_table import OptionTable, option_table
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import MS_SWIFT_PIPELINE
from megatron_hcp.rules.view import View

_MODEL = "--model Qwen/Qwen3-8B --context_parallel_size 2"


def _table() -> OptionTable:
    return option_table("framework_options/ms-swift.txt")


def _around(release: tuple[int, ...]) -> set[str] | None:
    """The revisions in the table before and after a release, or that release; None if it isn't between two."""
    head = of_package("ms_swift", "main")
    assert head is not None
    numbers = {one: head.numbers if one == "main" else tuple(map(int, one.split("."))) for one in _table().revisions}
    before = [one for one, of in numbers.items() if of <= release]
    after = [one for one, of in numbers.items() if of >= release]
    return {before[-1], after[0]} if before and after else None


def _absent(v: View) -> list[Setting]:
    """The options that other releases have, but neither the launch's nor those around it."""
    around = _around(v.release("ms_swift"))
    if around is None or any(setting.key == "ignore_args_error" for setting in v.launch.reading.settings):
        return []
    having = [(setting, _table().revisions_with(setting.key)) for setting in v.launch.reading.settings]
    return [setting for setting, revisions in having if revisions and around.isdisjoint(revisions)]


@rule(
    "KEY010",
    "error crash config",
    source=(MS_SWIFT_PIPELINE.says("SwiftPipeline._parse_args", "raise ValueError(f'remaining_argv: ", ">=4.0"),),
    applies=lambda v: v.launch.dialect == "ms-swift" and v.launch.reading.form != "yaml" and v.known("ms_swift"),
    good=Example("ms-swift", f"{_MODEL} --cp_partition_mode zigzag", "ms_swift=4.5.2 gpus_per_node=8 nodes=1"),
    bad=Example("ms-swift", f"{_MODEL} --cp_partition_mode zigzag", "ms_swift=4.2.3 gpus_per_node=8 nodes=1"),
)
def options_are_those_of_the_release_of_ms_swift(v: View) -> Problem | None:
    """Every option exists in the launch's release of ms-swift.

    Options come and go with releases. ms-swift ends at start-up with the words that its parser leaves over, unless
    --ignore_args_error is set.
    """
    found = _absent(v)
    if not found:
        return None
    setting, more = found[0], f", and {len(found) - 1} more" if len(found) > 1 else ""
    having = _table().revisions_with(setting.key)
    known = having[0] if len(having) == 1 else f"{having[0]} to {having[-1]}"
    return Problem(
        message=f"--{setting.key} doesn't exist in ms-swift {v.ms_swift}: start-up ends with a ValueError",
        found=f"--{setting.key}{more}",
        wanted=f"an option of ms-swift {v.ms_swift}; this one exists in {known}",
        facts=(setting.key, "ms_swift"),
        location=setting.location,
    )
