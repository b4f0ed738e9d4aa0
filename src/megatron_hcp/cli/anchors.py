"""`hcp anchors`: checks the source anchors of rules and cards against upstream's sources."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.anchors import (
    STATUSES,
    AnchorVerdict,
    Root,
    all_anchors,
    anchors_of,
    installed_roots,
    named_root,
    unpacked_roots,
    verdicts,
)
from megatron_hcp.skills.citations import CITATION_STATUSES, CitationVerdict, citations_of, verdict_of
from megatron_hcp.skills.folders import has_card, skills_below


@click.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option(
    "--upstream",
    "--repo",
    "repos",
    multiple=True,
    metavar="[NAME[@BRANCH]=]DIR",
    help="A checkout (of main unless @BRANCH is given) of megatron-lm, megatron-bridge, verl, transformer-engine or "
    "another repository that a card names; NAME is recognised if left out; repeatable. --repo is the older name.",
)
@click.option(
    "--sources",
    metavar="DIR",
    envvar="HCP_UPSTREAM",
    help="A folder of unpacked wheels, each <dist>-<version> (also $HCP_UPSTREAM).",
)
@click.option("--all", "every", is_flag=True, help="Also list anchors that hold or are unverified here.")
@format_option("text", "json")
def anchors(folders: Sequence[str], repos: Sequence[str], sources: str | None, every: bool, fmt: str) -> int:
    """Report which source anchors hold, moved, changed or are gone.

    Without DIR, checks the anchors of all rules and of the pack's skills; with DIR, those of the skills in these
    folders. Looks in the installed packages, in --sources and in every --upstream; "unverified here" means that none of
    them has the source. For skills without a card, every file and line cited in their text is looked up in every
    --upstream, under any NAME, and reported as right, moved, drifted or gone, with a suggested anchor by name that
    stays valid when lines move. Exits with 1 if an anchor no longer holds or a citation is not right.
    """
    if sources and not os.path.isdir(sources):
        raise HcpError(f"found --sources {sources}", wanted="a folder of unpacked wheels", do="check the path")
    skills = list(dict.fromkeys(skill for folder in folders for skill in skills_below(folder)))
    wanted = [anchor for skill in skills if has_card(skill) for anchor in anchors_of(skill)]
    cited = [(skill.name, citation) for skill in skills if not has_card(skill) for citation in citations_of(skill)]
    if not folders:
        wanted = all_anchors()
    roots = [named_root(text) for text in repos]
    checkouts = {root.repo: root.path for root in roots}
    roots += unpacked_roots(Path(sources)) if sources else []
    known = {(root.repo, root.version) for root in roots}
    roots += [root for root in installed_roots() if (root.repo, root.version) not in known]
    if not roots:
        raise HcpError(
            "found no upstream sources",
            wanted="installed packages such as megatron-core, --upstream CHECKOUT or --sources FOLDER",
            do="without any, no anchor can be checked",
        )
    found = list(verdicts(wanted, roots))
    citations = [(skill, verdict_of(citation, checkouts)) for skill, citation in cited]
    ok = all(verdict.status in ("holds", "unverified here") for verdict in found)
    ok = ok and all(verdict.status in ("right", "unverified here") for _, verdict in citations)
    if fmt == "json":
        click.echo(dump(_json(found, citations, ok)))
    else:
        if found or not citations:
            _print(found, roots, every)
        _print_citations(citations, every)
    return 0 if ok else 1


def _json(
    found: Sequence[AnchorVerdict], citations: Sequence[tuple[str, CitationVerdict]], ok: bool
) -> dict[str, object]:
    rows = [
        {
            "owner": verdict.anchor.owner,
            "status": verdict.status,
            "where": verdict.where,
            "branch": verdict.branch,
            "detail": verdict.detail,
            "repo": verdict.anchor.source.repo,
            "path": verdict.anchor.source.path,
            "qualname": verdict.anchor.source.qualname,
        }
        for verdict in found
    ]
    counts = Counter(verdict.status for verdict in found)
    return {
        "schema": "hcp.anchors/2",
        "ok": ok,
        "summary": {status: counts[status] for status in STATUSES},
        "anchors": rows,
        "citations": [
            {
                "skill": skill,
                "file": verdict.citation.file,
                "line": verdict.citation.line,
                "path": verdict.citation.path,
                "lines": [number for number in (verdict.citation.first, verdict.citation.last) if number is not None],
                "status": verdict.status,
                "detail": verdict.detail,
                "anchor": verdict.anchor,
            }
            for skill, verdict in citations
        ],
    }


def _print_citations(citations: Sequence[tuple[str, CitationVerdict]], every: bool) -> None:
    for skill, verdict in citations:
        if every or verdict.status not in ("right", "unverified here"):
            citation = verdict.citation
            lines = f":{citation.first}-{citation.last}" if citation.first is not None else ""
            proposed = f"; anchor: {verdict.anchor}" if verdict.anchor else ""
            where = f"{skill}/{citation.file}:{citation.line}"
            say([f"{verdict.status:<15} {where}  {citation.path}{lines}: {verdict.detail}{proposed}".rstrip(": ")])
    counts = Counter(verdict.status for _, verdict in citations)
    if counts:
        sums = ", ".join(f"{counts[status]} {status}" for status in CITATION_STATUSES if counts[status])
        say([f"citations in {len({skill for skill, _ in citations})} skills without a card: {sums}"])


def _print(found: Sequence[AnchorVerdict], roots: Sequence[Root], every: bool) -> None:
    for verdict in found:
        if every or verdict.status not in ("holds", "unverified here"):
            source = verdict.anchor.source
            where = f"{source.repo} {os.path.basename(verdict.where)}".strip()
            detail = f": {verdict.detail}" if verdict.detail else ""
            say([f"{verdict.status:<15} {verdict.anchor.owner}  {where}  {source.path} {source.qualname}{detail}"])
    counts = Counter(verdict.status for verdict in found)
    trees = Counter(root.repo for root in roots)
    looked = ", ".join(f"{repo} x{number}" for repo, number in sorted(trees.items()))
    sums = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    say([f"{sums} (looked in {looked})"])
    blind = Counter(verdict.anchor.source.repo for verdict in found if verdict.status == "unverified here")
    if blind and not every:
        missing = ", ".join(f"{repo} ({number})" for repo, number in sorted(blind.items()))
        say([f"unverified here because the sources are missing: {missing}; give --upstream or --sources; see --all"])
