"""What the programs in checks/ share: arguments, worker processes, results as text or JSON, exit codes.

A program runs alone (`python checks/x.py`: it starts its own workers on this machine) or under torchrun, which starts
the workers. It exits with 0 if everything held, 1 if something did not, 2 if it could not run. Nothing here imports
torch before the arguments are read, so that `--help` and "torch is not installed" work without it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.proofs.procs import WorkerFailure, die_with_parent, run_workers

SCHEMA = "hcp.step/1"


class Result(NamedTuple):
    """One thing that a program established, or failed to."""

    name: str
    ok: bool
    detail: str
    measured: float | None = None
    bound: float | None = None


class World:
    """What a worker knows: who it is, its device, and where its results go.

    `results` must be the same list of names on every rank: a result holds if it holds on all of them.
    """

    def __init__(self, rank: int, size: int, device: Any, backend: str, timeout: float) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.backend = backend
        self.timeout = timeout
        self.results: list[Result] = []

    def stream(self) -> Any:
        """A CUDA stream for Transformer Engine's communication; None on a CPU."""
        import torch

        return torch.cuda.Stream() if self.device.type == "cuda" else None

    def expect(self, name: str, ok: bool, detail: str = "") -> None:
        """Records whether something holds; `detail` says what was found."""
        self.results.append(Result(name, bool(ok), detail))

    def expect_at_most(self, name: str, measured: float, bound: float, detail: str = "") -> None:
        """Records an error and its bound. NaN does not hold."""
        self.results.append(Result(name, measured <= bound, detail, float(measured), float(bound)))


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Adds --attention: whose attention class a program runs on, and so whether on CPU or GPUs."""
    parser.add_argument(
        "--attention",
        choices=("reference", "transformer-engine"),
        default="reference",
        help="whose attention class: ours on the CPU (default), or Transformer Engine's on GPUs",
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Adds --sizes, a list of (inner, outer) with one product."""
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_sizes,
        action=_SameProduct,
        default=[(2, 2)],
        metavar="INNER,OUTER",
        help="the levels of a2a+p2p (default: 2,2); several with one product run one after another",
    )


def _sizes(text: str) -> tuple[int, int]:
    try:
        inner, outer = map(int, text.split(","))
    except ValueError:
        inner = outer = 0
    if min(inner, outer) < 1:
        raise argparse.ArgumentTypeError(f"{text}: wanted INNER,OUTER, for example 2,2")
    return inner, outer


class _SameProduct(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        products = sorted({inner * outer for inner, outer in values})
        if len(products) > 1:
            parser.error(f"{option} with the products {products}: wanted one product, the number of CP ranks")
        setattr(namespace, self.dest, values)


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
        options.timeout = options.timeout or self.timeout * (1 if _is_on_cpu(options) else 5)
        started = time.monotonic()
        report: dict[str, Any] = {
            "schema": SCHEMA,
            "program": self.name,
            "ok": False,
            "world_size": None,
            "backend": None,
            "versions": _versions(),
            "results": [],
            "error": None,
        }
        code, is_speaker = 1, os.environ.get("RANK", "0") == "0"
        try:
            _require(self.needs, options)
            size = self.world_size(options)
            report["world_size"] = size
            results, report["backend"] = self._results(options, size)
            report["results"] = [result._asdict() for result in results]
            report["ok"] = bool(results) and all(result.ok for result in results)
            code = 0 if report["ok"] else 1
        except HcpError as error:
            report["error"], code = str(error), 2
        except WorkerFailure as error:
            report["error"] = str(error)
        except KeyboardInterrupt:
            return 130
        report["seconds"] = round(time.monotonic() - started, 1)
        if is_speaker:
            print(json.dumps(report) if options.json else _text(report, code), flush=True)
        reason = report["error"] or next((_line(r) for r in map(_result, report["results"]) if not r.ok), None)
        # Under torchrun the rank that fails says why; a fault of the user is the same on all.
        if reason and (is_speaker or (code == 1 and report["error"])):
            print(f"{self.name}.py: {reason}", file=sys.stderr, flush=True)
        return code

    def _results(self, options: argparse.Namespace, size: int) -> tuple[list[Result], str]:
        warnings.filterwarnings("ignore", module=r"megatron|torch\.distributed")
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            found = int(os.environ["WORLD_SIZE"])
            if found != size:
                raise HcpError(
                    f"{self.name}.py runs on {size} processes, torchrun started {found}: use --nproc-per-node {size}"
                )
            die_with_parent(os.getppid())
            try:
                return self._work_as(int(os.environ["RANK"]), size, options, None)
            except HcpError:
                raise
            except Exception:
                raise WorkerFailure(f"rank {os.environ['RANK']} failed: {traceback.format_exc().strip()}") from None
        if _is_on_cpu(options):  # on GPUs an import may start CUDA, which does not survive a fork
            for name in self.needs:
                importlib.import_module(name)
        with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
            store = str(Path(folder) / "store")
            by_rank = run_workers(lambda rank: self._work_as(rank, size, options, store), size, options.timeout)
        return by_rank[0]  # type: ignore[no-any-return]

    def _work_as(
        self, rank: int, size: int, options: argparse.Namespace, store: str | None
    ) -> tuple[list[Result], str]:
        from hcp.proofs.world import joined_world

        with joined_world(rank, size, options, store) as world:
            self.work(world, options)
            return _agreed(world), world.backend


def _agreed(world: World) -> list[Result]:
    """The results of all ranks as one list: each holds if it holds everywhere; the largest error counts."""
    import torch.distributed as dist

    everyone: list[list[Result]] = [[] for _ in range(world.size)]
    dist.all_gather_object(everyone, world.results)
    names = [[result.name for result in results] for results in everyone]
    assert all(found == names[0] for found in names), f"the ranks did not do the same: {names}"
    agreed = []
    for of_ranks in zip(*everyone):
        failed = [rank for rank, result in enumerate(of_ranks) if not result.ok]
        # max() would drop a NaN
        worst = max(of_ranks, key=lambda r: (not r.ok, r.measured if r.measured is not None else 0.0))
        detail = worst.detail
        if failed and len(failed) < world.size:
            detail = f"on rank {', '.join(map(str, failed))}: {detail}"
        agreed.append(worst._replace(ok=not failed, detail=detail))
    return agreed


def _is_on_cpu(options: argparse.Namespace) -> bool:
    attention: str = getattr(options, "attention", "reference")
    return attention == "reference"


def _require(needs: Sequence[str], options: argparse.Namespace) -> None:
    needs = [*needs, *([] if _is_on_cpu(options) else ["transformer_engine"])]
    missing = [name for name in needs if importlib.util.find_spec(name.split(".")[0]) is None]
    if missing:
        packages = {
            "torch": "torch",
            "megatron.core": "megatron-core",
            "einops": "einops",
            "transformer_engine": "transformer-engine",
        }
        names = ", ".join(packages.get(name, name) for name in missing)
        extra = "te" if "transformer_engine" in missing else "megatron"
        raise HcpError(f"{names} not installed: pip install 'megatron-hcp[{extra}]'")


def _versions() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for package in ("torch", "megatron-core", "transformer-engine"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _text(report: dict[str, Any], code: int) -> str:
    lines = [_line(_result(fields)) for fields in report["results"]]
    verdict = {0: "passed", 1: "failed", 2: "could not run"}[code]
    if report["error"]:
        return f"{verdict}: {report['error'].splitlines()[-1]}"
    stack = ", ".join(f"{name} {found}" for name, found in report["versions"].items() if found)
    held = sum(result["ok"] for result in report["results"])
    lines.append(
        f"{verdict}: {held} of {len(report['results'])} results hold, {report['world_size']} processes, "
        f"{report['backend']}, {stack}, {report['seconds']} s"
    )
    return "\n".join(lines)


def _result(fields: dict[str, Any]) -> Result:
    return Result(**fields)


def _line(result: Result) -> str:
    mark = "ok  " if result.ok else "FAIL"
    error = "" if result.measured is None else f" {result.measured:.1e} (bound {result.bound:.1e})"
    return f"{mark} {result.name}{error}" + (f": {result.detail}" if result.detail else "")
