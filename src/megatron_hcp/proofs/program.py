"""What the programs in checks/ share: worker processes, results as text or JSON, exit codes.

A program runs alone (`python checks/x.py`: it starts its own workers on this machine) or under torchrun, which starts
the workers. It exits with 0 if every result held, 1 if one did not, 2 if it could not run. Nothing here imports
torch before the arguments are read, so that `--help` and "torch is not installed" work without it.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.arguments import REFERENCE, TE_CPU, is_on_cpu
from megatron_hcp.proofs.procs import WorkerFailure, die_with_parent, run_workers
from megatron_hcp.proofs.world import ProofResult, World, joined_world

SCHEMA = "hcp.step/1"
_PACKAGES = {
    "torch": "torch",
    "megatron.core": "megatron-core",
    "einops": "einops",
    "transformer_engine": "transformer-engine",
}
"""Module -> the distribution that provides it."""


@dataclass
class _Report:
    """What a program reports when it ends: the fields of `hcp.step/1`, in their order."""

    program: str
    ok: bool = False
    world_size: int | None = None
    backend: str | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    results: list[ProofResult] = field(default_factory=list)
    error: str | None = None
    refusal: Mapping[str, object] | None = None
    seconds: float = 0.0
    code: int = 1

    def json(self) -> str:
        fields = {"schema": SCHEMA, **vars(self), "results": [result._asdict() for result in self.results]}
        del fields["code"]
        return json.dumps(fields)

    def text(self) -> str:
        verdict = {0: "passed", 1: "failed", 2: "could not run"}[self.code]
        if self.error:
            return f"{verdict}: {self.error.splitlines()[-1]}"
        stack = ", ".join(f"{name} {found}" for name, found in self.versions.items() if found)
        held = sum(result.ok for result in self.results)
        summary = (
            f"{verdict}: {held} of {len(self.results)} results hold, {self.world_size} processes, "
            f"{self.backend}, {stack}, {self.seconds} s"
        )
        return "\n".join([*map(str, self.results), summary])

    def reason(self) -> str | None:
        """Why it did not pass; None if it did."""
        return self.error or next((str(result) for result in self.results if not result.ok), None)


class Program:
    """One verification program.

    Args:
        name: of the file, without `.py`.
        doc: the module's docstring; its first line is the summary that `--help` starts with.
        work: what each rank does: `work(world, options)`.
        world_size: how many processes the options ask for.
        needs: modules without which it cannot run; they are imported before the workers are forked.
        timeout: default for --timeout, seconds.
    """

    def __init__(
        self,
        name: str,
        doc: str | None,
        work: Callable[[World, argparse.Namespace], None],
        *,
        world_size: Callable[[argparse.Namespace], int],
        needs: Sequence[str],
        timeout: float = 120,
        add_arguments: Callable[[argparse.ArgumentParser], None] | None = None,
    ) -> None:
        self.name = name
        self.work = work
        self.world_size = world_size
        self.needs = tuple(needs)
        self.parser = argparse.ArgumentParser(
            prog=f"{name}.py",
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="Exit status: 0 everything held, 1 something did not, 2 could not run.",
        )
        if add_arguments:
            add_arguments(self.parser)
        self.parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        self.parser.add_argument(
            "--timeout",
            type=float,
            metavar="SECONDS",
            help=f"end everything after this time (default: {timeout:g}, on GPUs {5 * timeout:g})",
        )
        self.timeout = timeout

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs the program; returns the exit code."""
        options = self.parser.parse_args(argv)
        options.timeout = options.timeout or self.timeout * (1 if is_on_cpu(options) else 5)
        started = time.monotonic()
        report, is_speaker = _Report(self.name, versions=_versions()), os.environ.get("RANK", "0") == "0"
        try:
            _require(self.needs, options)
            report.versions = {**report.versions, **_version_of_wheel(options)}
            report.world_size = size = self.world_size(options)
            report.results, report.backend = self._results(options, size)
            report.ok = bool(report.results) and all(result.ok for result in report.results)
            report.code = 0 if report.ok else 1
        except HcpError as error:
            report.error, report.refusal, report.code = str(error), vars(error), 2
        except WorkerFailure as error:
            report.error = str(error)
        except KeyboardInterrupt:
            return 130
        report.seconds = round(time.monotonic() - started, 1)
        if is_speaker:
            print(report.json() if options.json else report.text(), flush=True)
        reason = report.reason()
        # Under torchrun the failing rank says why; a user's mistake is the same on all ranks.
        if reason and (is_speaker or (report.code == 1 and report.error)):
            print(f"{self.name}.py: {reason}", file=sys.stderr, flush=True)
        return report.code

    def _results(self, options: argparse.Namespace, size: int) -> tuple[list[ProofResult], str]:
        warnings.filterwarnings("ignore", module=r"megatron|torch\.distributed")
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            found = int(os.environ["WORLD_SIZE"])
            if found != size:
                raise HcpError(
                    f"{self.name}.py runs on {size} processes, torchrun started {found}:",
                    do=f"use --nproc-per-node {size}",
                )
            die_with_parent(os.getppid())
            _load_wheel(options)
            try:
                return self._work_as(int(os.environ["RANK"]), size, options, None)
            except HcpError:
                raise
            except Exception:
                raise WorkerFailure(f"rank {os.environ['RANK']} failed: {traceback.format_exc().strip()}") from None
        _load_wheel(options)
        if is_on_cpu(options):  # on GPUs an import may start CUDA, which does not survive a fork
            _import_ahead(self.needs, self.work)
        with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
            store = str(Path(folder) / "store")
            by_rank = run_workers(lambda rank: self._work_as(rank, size, options, store), size, options.timeout)
        return by_rank[0]  # type: ignore[no-any-return]

    def _work_as(
        self, rank: int, size: int, options: argparse.Namespace, store: str | None
    ) -> tuple[list[ProofResult], str]:
        with joined_world(rank, size, options, store) as world:
            self.work(world, options)
            return world.agreed_results(), world.backend


def _import_ahead(needs: Sequence[str], work: Callable[..., None]) -> None:
    """Imports, once for all workers, what each would otherwise import itself, which would take most of its time.

    That is: what the program needs, what its functions import of hcp, and torch._dynamo, which torch imports when it is
    first asked for a random seed.
    """
    for name in needs:
        importlib.import_module(name)
    if "torch" in needs:
        importlib.import_module("torch._dynamo")
    for node in ast.walk(ast.parse(Path(inspect.getfile(work)).read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hcp."):
            importlib.import_module(str(node.module))


def _load_wheel(options: argparse.Namespace) -> None:
    """Imports Transformer Engine from a wheel where --attention says so; before megatron-core, which looks for it."""
    if getattr(options, "attention", REFERENCE) == TE_CPU:
        from megatron_hcp.ground.upstream_folder import unpacked
        from megatron_hcp.proofs.te_cpu.module import load_with_module

        load_with_module(unpacked("transformer-engine", options.te))


def _version_of_wheel(options: argparse.Namespace) -> dict[str, str]:
    if getattr(options, "attention", REFERENCE) != TE_CPU:
        return {}
    from megatron_hcp.ground.upstream_folder import unpacked

    release = unpacked("transformer-engine", options.te).name.rpartition("-")[2]
    return {"transformer-engine": f"{release} (with stand-ins)"}


def _require(needs: Sequence[str], options: argparse.Namespace) -> None:
    needs = [*needs, *([] if is_on_cpu(options) else ["transformer_engine"])]
    missing = [name for name in needs if importlib.util.find_spec(name.split(".")[0]) is None]
    if missing:
        names = ", ".join(_PACKAGES.get(name, name) for name in missing)
        extra = "te" if "transformer_engine" in missing else "megatron"
        raise HcpError(f"{names} not installed:", do=f"pip install '.[{extra}]' in a checkout")


def _versions() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for package in ("torch", "megatron-core", "transformer-engine"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
