"""`hcp anchors`: the source anchors of rules and cards against upstream's sources."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from hcp.cards.anchors import (
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
from hcp.cli.options import format_option
from hcp.cli.screen import say
from hcp.core.errors import HcpError


@click.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option(
    "--repo",
    "repos",
    multiple=True,
    metavar="NAME[@BRANCH]=PATH",
    help="A checkout, of main unless @BRANCH says another: megatron-lm, megatron-core, megatron-bridge, verl, "
    "transformer-engine or what a card names; repeatable.",
)
@click.option(
    "--sources",
    metavar="DIR",
    envvar="HCP_UPSTREAM",
    help="A folder of unpacked wheels, each <dist>-<version> (also $HCP_UPSTREAM).",
)
@click.option("--all", "every", is_flag=True, help="List the anchors that hold or are unverified here, too.")
@format_option("text", "json")
def anchors(folders: Sequence[str], repos: Sequence[str], sources: str | None, every: bool, fmt: str) -> int:
    """Tell which source anchors hold, moved, changed or are gone; unverified here = no sources to look in.

    Without DIR, those of all rules and of the pack's skills; with it, those of the skills in these folders. Looks in
    the installed packages, in --sources and in every --repo. Exit 1 if an anchor no longer holds.
    """
    if sources and not os.path.isdir(sources):
        raise HcpError(f"found --sources {sources}; wanted a folder of unpacked wheels; check the path")
    wanted = [anchor for folder in folders for anchor in anchors_of(Path(folder))] if folders else all_anchors()
    roots = [named_root(text, (anchor.source.repo for anchor in wanted)) for text in repos]
    roots += unpacked_roots(Path(sources)) if sources else []
    known = {(root.repo, root.version) for root in roots}
    roots += [root for root in installed_roots() if (root.repo, root.version) not in known]
    found = list(verdicts(wanted, roots))
    ok = all(verdict.status in ("holds", "unverified here") for verdict in found)
    if fmt == "json":
        click.echo(json.dumps(_json(found, ok), indent=2, ensure_ascii=False))
    else:
        _print(found, roots, every)
    return 0 if ok else 1


def _json(found: Sequence[AnchorVerdict], ok: bool) -> dict[str, object]:
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
        "schema": "hcp.anchors/1",
        "ok": ok,
        "summary": {status: counts[status] for status in STATUSES},
        "anchors": rows,
    }


def _print(found: Sequence[AnchorVerdict], roots: Sequence[Root], every: bool) -> None:
    for verdict in found:
        if every or verdict.status not in ("holds", "unverified here"):
            source = verdict.anchor.source
            where = f"{source.repo} {os.path.basename(verdict.where)}".strip()
            detail = f": {verdict.detail}" if verdict.detail else ""
            say([f"{verdict.status:<15} {verdict.anchor.owner}  {where}  {source.path} {source.qualname}{detail}"])
    counts = Counter(verdict.status for verdict in found)
    trees = Counter(root.repo for root in roots)
    looked = ", ".join(f"{repo} x{number}" for repo, number in sorted(trees.items())) or "nowhere: no sources here"
    sums = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    say([f"{sums} (looked in {looked})"])
    blind = Counter(verdict.anchor.source.repo for verdict in found if verdict.status == "unverified here")
    if blind and not every:
        missing = ", ".join(f"{repo} ({number})" for repo, number in sorted(blind.items()))
        say([f"unverified here, for want of sources: {missing}; give --repo or --sources; --all lists them"])
