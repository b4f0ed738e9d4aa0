"""`hcp init`: a first `.hcp.yaml` for a repository of launches."""

from __future__ import annotations

import os

import click

from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import write_whole
from megatron_hcp.ground.repository import repository_root
from megatron_hcp.ground.visible import visible
from megatron_hcp.project.place import CONFIG, config_file
from megatron_hcp.project.starter import first_config
from megatron_hcp.project.walk import files_below


@click.command()
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option("--print", "only_print", is_flag=True, help="Print the file instead of writing it.")
def init(folder: str, only_print: bool) -> None:
    """Write a first .hcp.yaml at the root of a repository of launches.

    It states what all its sources agree on: the containers that launches name, packages that requirements pin, the
    releases of upstream's code in submodules, and GPUs in sbatch headers. It lists what it could not determine.
    """
    if not os.path.isdir(folder):
        raise HcpError(f"{visible(folder)} is no folder", wanted="a repository of launches", do="check the path")
    root = repository_root(folder) or os.path.abspath(folder)
    found = config_file(root)
    if found is not None and not only_print:
        raise HcpError(f"{visible(found[0])} exists already", wanted="a repository without one", do="edit it")
    start = first_config(root, files_below(os.path.relpath(root)))
    if only_print:
        click.echo(start.text, nl=False)
    else:
        path = os.path.join(root, CONFIG)
        try:
            write_whole(path, start.text)
        except OSError as error:
            raise HcpError(f"cannot write {visible(path)}: {error.strerror}", do="make the folder writable") from None
        say([f"wrote {visible(os.path.relpath(path))}, from {start.launches} launch{'es' * (start.launches != 1)}"])
    say((f"hcp: not determined: {line}" for line in start.open), err=True)
