"""One rank of one launch, in this process, from the program's start to where the dry run ends."""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stages import PROGRESS, Reached
from megatron_hcp.pretend.verdict import OfTheLaunch, answer

OURS = {
    "mlm": "program",
    "bridge": "bridge_program",
    "slime": "slime_program",
    "verl": "verl_program",
    "ms-swift": "ms_swift_program",
    "nemo-rl": "nemo_rl_program",
}
"""By framework, the program here that stands for one of upstream's."""


class Request(NamedTuple):
    """What `hcp dryrun` asks: `program` is upstream's file, or "" for ours; `te` the folder and release, if any."""

    roots: tuple[str, ...]
    program: str
    te: tuple[str, str] | None
    words: tuple[str, ...]
    replaced: tuple[str, ...]
    is_world_stated: bool
    is_model_stated: bool
    environment: dict[str, str]
    world: int
    gpus_per_node: int
    ranks: tuple[int, ...]
    until: str
    seconds: int
    memory: int
    measure: bool = False
    framework: str = "mlm"

    @property
    def stated(self) -> OfTheLaunch:
        return OfTheLaunch(self.replaced, self.is_world_stated, self.is_model_stated, self.environment)

    @property
    def starts(self) -> str:
        """The program that is run."""
        return self.program or str(Path(__file__).with_name(f"{OURS[self.framework]}.py"))


def prepare(request: Request) -> None:
    """Puts the stand-ins in place and imports upstream's training."""
    for name in (
        "torch._dynamo",
        "torch.distributed.tensor",
        "torch.utils.cpp_extension",
        "torch.nn.attention.flex_attention",
        "torch.utils.flop_counter",
        "functorch.compile",
    ):
        importlib.import_module(name)  # they look for CUDA when they are imported
    from megatron_hcp.pretend.stand_ins import (
        conversations,
        data,
        device,
        experts,
        files,
        fused,
        kernels,
        optimizers,
        packages,
        pipeline,
        routing,
        sized,
        tensors,
        world,
    )
    from megatron_hcp.pretend.stand_ins.frameworks import bridge, ms_swift, nemo_rl, slime, verl

    RECORD.start((*request.roots, *([request.te[0]] if request.te else [])))
    sys.path[:0] = request.roots
    if request.framework in ("bridge", "verl", "ms-swift", "nemo-rl"):
        packages.run_no_code_of_models()  # transformers looks for kernels too
    if request.framework == "ms-swift":
        importlib.import_module("peft")
    device.install(request.gpus_per_node)
    for stand_in in (world, packages, kernels, optimizers, files, data, conversations):
        stand_in.install()
    if request.te is not None:
        from megatron_hcp.pretend.stand_ins import transformer_engine

        transformer_engine.install(Path(request.te[0]), request.te[1])
    sized.install()
    tensors.install()
    argparse.ArgumentParser.error = refuse  # type: ignore[method-assign]
    mixed = routing if request.measure else experts
    if request.framework == "bridge":
        bridge.load()
        late = [world, pipeline, files, bridge, mixed, fused]
    elif request.framework == "verl":
        bridge.load()
        verl.load()
        late = [world, pipeline, files, bridge, verl, mixed, fused]
    elif request.framework == "slime":
        slime.load()
        late = [world, pipeline, files, slime, mixed, fused]
    elif request.framework == "ms-swift":
        ms_swift.load()
        late = [world, pipeline, files, ms_swift, mixed, fused]
    elif request.framework == "nemo-rl":
        bridge.load()
        nemo_rl.load()
        late = [world, pipeline, files, bridge, nemo_rl, mixed, fused]
    else:
        importlib.import_module("megatron.training.training")
        late = [world, pipeline, files, data, conversations, mixed, fused]
    for module in late:
        module.late()
    from megatron_hcp.pretend.stages import watch

    watch()


def run(request: Request, rank: int) -> dict[str, Any]:
    """The stage that the rank came to, what ended it (None where it came to the end), and what was pretended."""
    begun = time.process_time()
    local = rank % request.gpus_per_node
    os.environ.update(request.environment)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(request.world), LOCAL_RANK=str(local),
                      LOCAL_WORLD_SIZE=str(min(request.world, request.gpus_per_node)), MASTER_ADDR="localhost",
                      MASTER_PORT="1")  # fmt: skip
    PROGRESS.until = request.until
    RECORD.watch_models(os.environ.get("HF_HUB_CACHE", ""))
    sys.argv = [request.starts, *request.words]
    error: BaseException | None = None
    measured = _measured() if request.measure else None
    try:
        runpy.run_path(request.starts, run_name="__main__")
    except Reached:
        pass
    except SystemExit as stop:
        error = stop if stop.code not in (0, None) else None
    except BaseException as raised:
        error = raised
    return {
        "stage": PROGRESS.stage,
        "error": None if error is None else answer(error, request.stated),
        "stand_ins": sorted(RECORD.stand_ins),
        "made_up": sorted({f"{RECORD.shown(place.file)} {place.function}" for place in RECORD.made_up}),
        "cpu_seconds": round(time.process_time() - begun, 1),
        "measured": measured.answer() if measured and error is None else None,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _measured() -> Any:
    from megatron_hcp.pretend.measure import MemoryCount, watch

    memory = MemoryCount()
    watch(memory)
    return memory


def refuse(self: argparse.ArgumentParser, message: str) -> NoReturn:
    """A parser's error, without its usage, which is pages."""
    raise SystemExit(message)
