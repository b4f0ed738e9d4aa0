"""A dry run as lines and as `hcp.dryrun/1`."""

from __future__ import annotations

import shlex
from typing import Any

from megatron_hcp.dryrun.ask import DryRun, RankRun

SCHEMA = "hcp.dryrun/1"
_PROGRAMS = {
    "bridge": ("run_recipe.py", "bridge_program"),
    "slime": ("train.py", "slime_program"),
    "ms-swift": ("megatron", "ms_swift_program"),
    "nemo-rl": ("run_*.py", "nemo_rl_program"),
    "verl": ("main_ppo.py", "verl_program"),
}
"""Of each framework above Megatron-LM, its program where the launch names none, and the one here that stands for it."""
_EXIT = {"done": 0, "refused": 1, "undecided": 4}


def exit_code(run: DryRun) -> int:
    """0 done, 1 refused by upstream's own code, 4 not decided beyond a stage."""
    return _EXIT[run.verdict]


def as_json(run: DryRun) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "ok": run.verdict == "done",
        "verdict": run.verdict,
        "target": run.launch.reading.target,
        "upstream": [{"repository": tree.repo, "release": tree.release} for tree in run.upstream],
        "until": run.ask.until,
        "world_size": {"value": run.world, "stated": run.is_world_stated},
        "limits": {
            "network": run.network or "none",
            "files": run.files or "read-only, but for a temporary folder",
            "seconds": run.ask.seconds,
            "memory_gib": run.ask.memory_gib,
        },
        "replaced": _replaced(run),
        "ranks": [_rank(outcome) for outcome in run.outcomes],
    }


def _replaced(run: DryRun) -> list[dict[str, Any]]:
    rows = [{"what": what, "was": list(was), "now": list(now)} for what, was, now in run.words.replaced]
    if not run.program:
        usual, ours = _PROGRAMS.get(run.launch.dialect, ("pretrain_gpt.py", "program"))
        script = run.launch.facts.get("script")
        was = str(script.value) if script and script.value else usual
        rows.append({"what": "program", "was": [was], "now": [f"megatron_hcp.pretend.{ours}"]})
    return rows


def _rank(outcome: RankRun) -> dict[str, Any]:
    error = dict(outcome.error) if outcome.error else None
    return {
        "rank": outcome.rank,
        "role": outcome.role,
        "verdict": outcome.verdict,
        "stage": outcome.stage,
        "missing": error.pop("missing") if error else "",
        "error": error if error and error["type"] else None,
        "stand_ins": list(outcome.stand_ins),
        "made_up": list(outcome.made_up),
        "cpu_seconds": outcome.cpu_seconds,
        "rss_mib": outcome.rss_mib,
    }


def lines(run: DryRun) -> list[str]:
    """A verdict first, then each rank's, then what was pretended."""
    code = ", ".join(f"{tree.repo} {tree.release or 'of no stated release'}" for tree in run.upstream)
    size = f"{run.world} ranks" + ("" if run.is_world_stated else " (presumed: the smallest that the sizes take)")
    shown = [f"dry run of {run.launch.reading.target or 'the launch'}: {code}; {size}"]
    for outcome in run.outcomes:
        shown += _outcome_lines(outcome)
    for row in _replaced(run):
        if row["was"]:
            now = shlex.join(row["now"]) or "nothing"
            shown.append(f"replaced: {row['what']}: {shlex.join(row['was'])[:300]} -> {now}")
    used = sorted({name for outcome in run.outcomes for name in outcome.stand_ins})
    shown += [f"stand-ins used: {', '.join(used)}"] if used else []
    return [*shown, *unlimited(run), _last(run)]


def unlimited(run: DryRun) -> list[str]:
    """What this system did not allow of the sandbox, a line each."""
    said = (("network not cut off", run.network), ("files not read-only", run.files))
    return [f"{what}: {why}" for what, why in said if why]


def _outcome_lines(outcome: RankRun) -> list[str]:
    where = f"rank {outcome.rank} ({outcome.role})"
    error = outcome.error
    if error is None:
        return [f"{where}: done to the end of {outcome.stage}"]
    place = f"{error['file']}:{error['line']} {error['function']}" if error["file"] else ""
    says = f"{error['type']}: {error['message']}" if error["type"] else ""
    if error["missing"]:
        rows = [f"{where}: not decided beyond {outcome.stage}: missing {error['missing']}"]
    else:
        rows = [f"{where}: refused in {outcome.stage} by {place}"]
        return [*rows, f"  {says}", f"  {error['code']}"]
    return rows + ([f"  {says} ({place})"] if says else [])


def _last(run: DryRun) -> str:
    if run.verdict == "done":
        return f"done: upstream's own code came to the end of {run.ask.until}"
    return "REFUSED by upstream's own code" if run.verdict == "refused" else "NOT DECIDED: no failure of the launch"
