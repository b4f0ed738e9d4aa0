"""Options that Megatron-LM's command line rejects."""

from __future__ import annotations

from megatron_hcp.launch.fact import Setting
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS
from megatron_hcp.rules.view import View

_OWN_PROGRAMS = frozenset(("pretrain_gpt.py", "pretrain_hybrid.py", "pretrain_mamba.py"))
"""Programs that use exactly the options of Megatron-LM's own parser; others add some."""


def revision_of_launch(v: View) -> str | None:
    """The revision of Megatron-LM whose options the launch must use; None if its version doesn't determine one."""
    from megatron_hcp.launch.facts.known_options import revision_of

    return revision_of(v.release("mcore"), v.get("mcore_branch")) if v.known("mcore") else None


def _program_is_read(v: View) -> bool:
    """Whether the launch starts one of Megatron-LM's own programs, or names none, as words after `--`."""
    script = v.get("script")
    if isinstance(script, str):
        return script.rpartition("/")[2] in _OWN_PROGRAMS
    return v.launch.reading.form != "shell"


def _is_for_a_branch(v: View) -> bool:
    """Whether DCP028 reports it."""
    if not v.get("hybrid_context_parallel"):
        return False
    from megatron_hcp.rules.dcp.view import option_of_a_branch

    return option_of_a_branch(v) is not None


def _was_read(v: View) -> bool:
    from megatron_hcp.rules.dcp.view import is_newer_than_read

    return not is_newer_than_read(v)


def _options_of_others(v: View) -> list[Setting]:
    """The options that some revisions have, but not the launch's.

    Excluded is what another rule reports: the name of the dynamic CP switch (DCP020) and its companions (DCP028).
    """
    from megatron_hcp.launch.facts.known_options import revisions_with

    revision = revision_of_launch(v)
    switches = ("hybrid_context_parallel", "dynamic_context_parallel")
    if revision is None or _is_for_a_branch(v):
        return []
    if any(v.get(name) and revision not in revisions_with(name) for name in switches):
        return []
    found = [(setting, revisions_with(setting.key)) for setting in v.launch.reading.settings]
    return [setting for setting, revisions in found if revisions and revision not in revisions]


@rule(
    "KEY002",
    "error crash config",
    source=(ARGUMENTS.says("parse_args", "args = parser.parse_args()", ">=0.12"),),
    applies=lambda v: v.launch.dialect == "mlm" and _program_is_read(v) and revision_of_launch(v) is not None,
    good=Example("mlm", "--seq-length 4096 --window-size 128,0 --cp-comm-type a2a", "mcore=0.15.0"),
    bad=Example("mlm", "--seq-length 4096 --window-size 128,0 --cp-comm-type a2a", "mcore=0.14.0"),
)
def options_are_those_of_the_release(v: View) -> Problem | None:
    """Every option exists in the launch's release or branch of Megatron-LM.

    Options come and go, and branches have their own. argparse rejects an unknown option, but only after the job has
    waited for its nodes; abbreviations are not accepted.
    """
    from megatron_hcp.launch.facts.known_options import revisions_with
    from megatron_hcp.launch.facts.last_read import BRANCHES

    found, revision = _options_of_others(v), revision_of_launch(v)
    if not found:
        return None
    have = revisions_with(found[0].key)
    known = have[0] if len(have) == 1 else f"{have[0]} to {have[-1]}"
    here = f"Megatron-LM {v.mcore}"
    if revision in BRANCHES:
        here = f"{revision} ({v.mcore})"
    problem = _unknown(found, f"doesn't exist in {here}", f"an option of {revision}; this one exists in {known}")
    may_come = revision in BRANCHES and have[-1] in BRANCHES  # branches adopt each other's options
    return problem._replace(severity="warning") if may_come else problem


def options_of_nobody(v: View) -> list[Setting]:
    """The options that no revision has and that aren't misspellings; those of a branch with hybrid CP are DCP028's."""
    from megatron_hcp.launch.dialects.known_keys import near_miss
    from megatron_hcp.launch.facts.known_options import all_options

    if _is_for_a_branch(v):
        return []
    known = all_options()
    return [s for s in v.launch.reading.settings if s.key not in known and near_miss("mlm", s.key) is None]


def _can_be_told(v: View) -> bool:
    """Whether a custom option would be rejected: in one of Megatron-LM's programs, or with its version stated."""
    return _program_is_read(v) and v.launch.reading.form != "args-yaml" and (v.known("script") or v.known("mcore"))


@rule(
    "KEY003",
    "error crash config",
    source=(ARGUMENTS.says("parse_args", "allow_abbrev=False", ">=0.12"),),
    applies=lambda v: v.launch.dialect == "mlm" and _can_be_told(v) and _was_read(v),
    good=Example("mlm", "--seq-length 4096", "mcore=0.16.1"),
    bad=Example("mlm", "--seq-length 4096 --sft-sequence-packing", "mcore=0.16.1 script=pretrain_gpt.py"),
)
def options_are_those_of_megatron_lm(v: View) -> Problem | None:
    """Every option exists in some release or branch of Megatron-LM.

    A script with an option that neither a release nor main or dev has was written for another branch, or for a program
    that adds options. Megatron-LM's own programs reject it. It is a warning if the program or its version isn't stated:
    a fork's pretrain_gpt.py may have its own options. hcp doesn't know what the other options mean on that branch.
    """
    found = options_of_nobody(v)
    if not found:
        return None
    version = f" (of Megatron-LM {v.mcore})" if v.known("mcore") else ""
    wanted = "options of Megatron-LM, or the branch or program that the script was written for"
    problem = _unknown(found, f"doesn't exist on main{version}: this script was written for another branch", wanted)
    return problem if v.known("script") and revision_of_launch(v) else problem._replace(severity="warning")


def _unknown(found: list[Setting], message: str, wanted: str) -> Problem:
    """The problem of options that the parser rejects."""
    options = [f"--{setting.key.replace('_', '-')}" for setting in found]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem(
        message=f"{options[0]} {message}, and argparse rejects it",
        found=f"{options[0]}{more}",
        wanted=wanted,
        facts=(found[0].key,),
        location=found[0].location,
    )
