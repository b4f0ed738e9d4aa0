"""Options shared by several commands, each defined once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from megatron_hcp.cli import declare as click  # declares as click does, without importing it
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import DIALECTS, Beside, ProjectSettings, UpstreamTree

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def format_option(*formats: str) -> Decorator:
    """`--format`; the first format is the default."""
    return click.option("--format", "fmt", type=click.Choice(formats), default=formats[0], show_default=True)


def assume_option(help: str) -> Decorator:
    """`--assume NAME=VALUE`, repeatable."""
    return click.option("--assume", "assumes", multiple=True, metavar="NAME=VALUE", help=help)


dialect_option = click.option(
    "--dialect",
    "--launcher",
    "dialect",
    type=click.Choice(("auto", *DIALECTS)),
    default="auto",
    show_default=True,
    callback=lambda context, option, value: None if value == "auto" else value,
    help="The launch's dialect.",
)
"""The command gets a `Dialect`, or None if it is to be detected. `--launcher` is the older name."""

model_option = click.option(
    "--model",
    "model_file",
    metavar="FILE|NAME",
    help="Where to read the model's facts: a Hugging Face config.json, or the name of a public or cached model.",
)

recipe_option = click.option(
    "--recipe",
    metavar="NAME",
    help="The Megatron-Bridge recipe that the launch starts from; state its release with --assume bridge=VERSION.",
)

site_option = click.option(
    "--site",
    "site_file",
    metavar="FILE",
    help="The site file: YAML with facts about the cluster, keyed by the names of `hcp render`'s options.",
)

_BESIDE_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--source",
        "sources",
        multiple=True,
        metavar="FILE|FOLDER",
        help="Use this for a file outside the script's repository that the script sources or starts. A FILE replaces "
        "one of the same name, or one whose name cannot be resolved; in a FOLDER, the file is found by the end of its "
        "path. Files in the script's repository need no --source. Repeatable.",
    ),
    click.option(
        "--args", "arguments", metavar="WORDS", help="The script's arguments, as one word: --args '3 8' sets $1 and $2."
    ),
)

_UPSTREAM_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--upstream",
        "upstreams",
        multiple=True,
        metavar="[NAME=]DIR|installed",
        help="Judge by this code of upstream, not by hcp's tables: a checkout, a fork, an unpacked wheel, or what is "
        "installed here. NAME is megatron-lm, bridge, te, verl, nemo-rl, slime or ms-swift. It is read; only "
        "dryrun, check --dryrun, plan --measure and verify --engine upstream run it. "
        "Repeatable.",
    ),
    click.option("--no-cache", is_flag=True, help="Don't read or write hcp's cache."),
)

isolated_option = click.option("--isolated", is_flag=True, help="Ignore the repository's .hcp.yaml and baseline.")
_LAUNCH_OPTIONS: tuple[Decorator, ...] = (
    click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one of the launch's own keys."),
    assume_option(
        "State facts that the launch does not: te=2.14 mcore=0.16.1 arch=sm90 nvlink_domain=8; "
        "'installed' reads the versions here."
    ),
    click.option("--facts", "facts_file", metavar="FILE", help="Facts written by `hcp facts` where the job runs."),
    site_option,
    dialect_option,
    model_option,
    recipe_option,
    *_BESIDE_OPTIONS,
    *_UPSTREAM_OPTIONS,
    isolated_option,
)


def launch_options(command: Command) -> Command:
    """Adds all options that control how a launch is read; the command gets them as one `options: LoadOptions`.

    They include the words after `--`.
    """

    @functools.wraps(command)
    def with_load_options(*args: Any, assumes: tuple[str, ...], site_file: str | None, **rest: Any) -> Any:
        from megatron_hcp.launch.load import LoadOptions

        if site_file is not None:
            from megatron_hcp.render.site import load_site, site_assumptions

            # What --assume states wins over the site file.
            assumes = (*site_assumptions(load_site(site_file, {})), *assumes)
        beside = _beside(rest.pop("sources"), rest.pop("arguments"))
        cached = not rest.pop("no_cache")
        upstream = _upstream(rest.pop("upstreams"), cached)
        words = rest.pop("after") if "after" in rest else _words_of_click()
        project = None if rest.pop("isolated") else project_of
        named = {name: rest.pop(name) for name in ("dialect", "sets", "facts_file", "model_file", "recipe")}
        options = LoadOptions(
            words=words,
            assumes=assumes,
            beside=beside,
            upstream=upstream,
            find_project=project,
            cached=cached,
            **named,
        )
        return command(*args, options=options, **rest)

    for option in reversed(_LAUNCH_OPTIONS):
        option(with_load_options)
    return with_load_options


def _words_of_click() -> tuple[str, ...]:
    """The words after `--` of the command that click runs."""
    from click import get_current_context

    return get_current_context().obj or ()


def project_of(target: str) -> ProjectSettings | None:
    """What the `.hcp.yaml` of a target's repository states; its reader is imported if there is one."""
    from megatron_hcp.project.place import has_project

    if not has_project(target):
        return None
    from megatron_hcp.project.config import settings_of

    return settings_of(target)


def beside_options(command: Command) -> Command:
    """Adds `--source` and `--args`; the command gets them as one `beside: Beside`."""

    @functools.wraps(command)
    def with_beside(*args: Any, sources: tuple[str, ...], arguments: str | None, **rest: Any) -> Any:
        return command(*args, beside=_beside(sources, arguments), **rest)

    for option in reversed(_BESIDE_OPTIONS):
        option(with_beside)
    return with_beside


def upstream_options(command: Command) -> Command:
    """Adds `--upstream` and `--no-cache`; the command gets them as one `upstream: tuple[UpstreamTree, ...]`."""

    @functools.wraps(command)
    def with_upstream(*args: Any, upstreams: tuple[str, ...], no_cache: bool, **rest: Any) -> Any:
        return command(*args, upstream=_upstream(upstreams, not no_cache), **rest)

    for option in reversed(_UPSTREAM_OPTIONS):
        option(with_upstream)
    return with_upstream


def _upstream(texts: tuple[str, ...], cached: bool) -> tuple[UpstreamTree, ...]:
    """What `--upstream` names."""
    if not texts:
        return ()
    from megatron_hcp.launch.upstream import upstreams_of

    return upstreams_of(texts, cached=cached)


def _beside(sources: tuple[str, ...], arguments: str | None) -> Beside:
    """What `--source` and `--args` say.

    Raises:
        HcpError: the file or folder does not exist, or a quote is not closed.
    """
    for source in sources:
        if not os.path.exists(source):
            raise HcpError(
                f"--source {source} does not exist", wanted="a script or a folder of scripts", do="check the path"
            )
    if arguments is None:
        return Beside(sources=sources)
    import shlex

    try:
        words = tuple(shlex.split(arguments))
    except ValueError as error:
        raise HcpError(
            f"--args {arguments} cannot be split ({error})", wanted="words quoted as in a shell", do="close the quote"
        ) from None
    return Beside(sources=sources, arguments=words)
