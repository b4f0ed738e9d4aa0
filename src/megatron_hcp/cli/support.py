"""`hcp support`: which kinds of context parallelism a model supports on given versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.output import check_outputs, write_ours
from megatron_hcp.cli.screen import say
from megatron_hcp.cli.targets import without_assumptions
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.support.matrix import TP_SIZES, support_table
from megatron_hcp.support.question import MODEL_WORDS, Subject

_LARGEST_TP = 64


@click.command()
@click.argument("words", nargs=-1, metavar="[TARGET]")
@click.option("--tp", "tp_text", metavar="N,N,...", help="Tensor-parallel sizes to ask about.  [default: 1,2,4,8]")
@click.option("--html", metavar="FILE", help="Write the tables as an HTML page.")
@launch_options
@format_option("text", "json")
def support(words: Sequence[str], tp_text: str | None, html: str | None, options: LoadOptions, fmt: str) -> None:
    """Show which context parallelism a model supports: each communication type, packed or not, at each TP size.

    TARGET is a model's config.json, its folder, or the name of a public or cached model; or a launch, as for `hcp
    check`. Versions that are not stated are assumed to be the newest, and a second table shows support by release.
    Every answer comes from `hcp check`.

    \b
    hcp support config.json
    hcp support config.json --assume te=2.14 mcore=0.16.1 arch=sm90
    hcp support run.yaml --tp 1,2
    """
    from megatron_hcp.cli.reports import support as report

    check_outputs({"--html": html})
    names, facts = without_assumptions(words)
    if len(names) > 1:
        raise HcpError(f"found {len(names)} targets", wanted="one model or launch", do="ask about one at a time")
    options = options._replace(assumes=(*options.assumes, *facts))
    subject, name = _subject(names[0] if names else None, options)
    table = support_table(subject, _tp_sizes(tp_text))
    if html is not None:
        write_ours("--html", html, report.page(table, name))
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump(report.as_json(table, name)) + "\n")
        sys.stdout.flush()
    else:
        say(report.lines(table, name))


def _subject(target: str | None, options: LoadOptions) -> tuple[Subject, str]:
    """The model or launch in question, and its name.

    Raises:
        HcpError: neither a model nor a launch is named, or it cannot be used.
    """
    if target is not None and options.model_file is None and _is_model(target):
        options, target = options._replace(model_file=target), None
    if target is not None or options.words or options.recipe is not None:
        launch = load_launch(target or "", options)
        return Subject(launch.reading, launch.assumed, launch.model), target or "the launch"
    if options.model_file is None:
        raise HcpError("found no model and no launch", wanted="one: name a config.json, or a launch")
    launch = load_launch("", options._replace(words=MODEL_WORDS, dialect="mlm"))
    return Subject(launch.reading, launch.assumed, launch.model), options.model_file


def _is_model(target: str) -> bool:
    if target.endswith(".json") or os.path.isdir(target):
        return True
    from megatron_hcp.launch.hf_cache import is_model_name

    return not os.path.lexists(target) and is_model_name(target)


def _tp_sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return TP_SIZES
    words = text.replace(",", " ").split()
    sizes = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 4]
    if len(sizes) != len(words) or not sizes or not 1 <= min(sizes) <= max(sizes) <= _LARGEST_TP:
        raise HcpError(f"--tp {text[:40]!r}:", wanted=f"sizes from 1 to {_LARGEST_TP}, such as 1,2,4,8")
    return tuple(dict.fromkeys(sizes))
