"""A trainer without torch, for faults in the job around it: Megatron-LM's lines, checkpoints and signals, and --fault.

Takes Megatron-LM's flags (unknown ones are ignored). The ranks meet after every iteration, through files. A fault
befalls one rank (--rank, default 3) after an iteration (--at), or all ranks; --once: only in the job's first attempt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NODE = os.environ.get("SLURMD_NODENAME", "")
ATTEMPT = os.environ.get("SLURM_RESTART_COUNT", "0")
START = f"{os.environ['SLURM_JOB_ID']}-{ATTEMPT}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
SIGNALS = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "bus": signal.SIGBUS, "abort": signal.SIGABRT}


def say(*words: object) -> None:
    print(*words, flush=True)


class Ranks:
    """The ranks' meeting place: each leaves a file for each meeting, and reads those of the others."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        self.folder, self.patience_s = folder, patience_s
        folder.mkdir(parents=True, exist_ok=True)

    def meet(self, name: str, word: str = "") -> list[str]:
        """Waits for all ranks; what each of them said."""
        own = self.folder / f"{name}.{RANK}"
        own.with_suffix(f".{RANK}.new").write_text(word or "-")
        own.with_suffix(f".{RANK}.new").rename(own)
        others = [self.folder / f"{name}.{rank}" for rank in range(WORLD)]
        ends = time.monotonic() + self.patience_s
        while not all(other.exists() for other in others):
            if time.monotonic() > ends:
                late = [rank for rank, other in enumerate(others) if not other.exists()]
                raise RuntimeError(f"Timed out waiting {self.patience_s * 1000:.0f}ms for ranks {late} at {name}")
            time.sleep(0.05)
        return [other.read_text() for other in others]


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.asked, self.saves = options, False, 0
        self.tracker = options.save / "latest_checkpointed_iteration.txt"

    def run(self) -> int:
        options = self.options
        if options.fault == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked", True))
        begin_at(options)
        ranks = Ranks(Path(f"ranks-{START}").absolute(), options.patience)
        step = int(self.tracker.read_text()) if self.tracker.is_file() else 0
        if options.fault == "unreadable" and step:
            raise EOFError("Ran out of input")
        while step < options.train_iters:
            begun = time.perf_counter()
            time.sleep(options.step_seconds)
            if step == options.at and befalls(options):
                befall(options, self)
            step += 1
            milliseconds = (time.perf_counter() - begun) * 1000
            if RANK == WORLD - 1:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                say(
                    f" [{now}] iteration {step:8d}/{options.train_iters:8d} | elapsed time per iteration (ms): "
                    f"{milliseconds:.1f} | lm loss: {9 / (step + 1):.6E} |"
                )
            while step == options.wait_at and not self.asked:
                time.sleep(0.05)
            ending = "ask" in ranks.meet(f"step-{step}", "ask" if self.asked else "")
            leaves = options.fault.startswith("leave-") and step == options.at
            if ending or leaves or step % options.save_interval == 0 or step == options.train_iters:
                self.save(step)
                ranks.meet(f"saved-{step}")
            if ending:
                say("exiting program after receiving SIGTERM.")
                return 0
            if leaves:
                how = {"leave-time": "after 220.1 minutes", "leave-step": f"at iteration {step}"}[options.fault]
                say(f"[exiting program {how}] datetime: {time.strftime('%Y-%m-%d %H:%M:%S')}")
                return 0
        say(f"[after training is done] datetime: {time.strftime('%Y-%m-%d %H:%M:%S')}")
        if options.fault == "hang-end" and befalls(options):
            time.sleep(3600)
        return 0

    def save(self, step: int) -> None:
        if RANK != 0:
            return
        say(f"saving checkpoint at iteration {step:7d} to {self.options.save} in torch_dist format")
        self.saves += 1
        time.sleep(self.options.save_seconds)
        if self.options.fault == "hang-save" and self.saves >= self.options.at:
            time.sleep(3600)
        if self.options.fault == "full" and self.saves >= self.options.at:
            with open("/dev/full", "w") as file:
                file.write("x" * 100_000)
        if self.saves == 1:
            self.options.save.mkdir(parents=True, exist_ok=True)
        (self.options.save / f"iter_{step:07d}").write_text("")
        self.tracker.write_text(str(step))
        say(f"successfully saved checkpoint from iteration {step:7d} to {self.options.save} [ t 1/1, p 1/1 ]")


def befalls(options: argparse.Namespace) -> bool:
    return (options.rank in (RANK, -1)) and not (options.once and ATTEMPT != "0")


def begin_at(options: argparse.Namespace) -> None:
    """What happens before the first iteration."""
    kind, _, value = options.fault.partition(":")
    if kind == "slow-start":
        time.sleep(float(value))
    if kind == "daemon":
        if os.fork():
            os._exit(0)
        time.sleep(60)
        os._exit(0)
    if kind == "no-module" and befalls(options):
        import transformer_engine_of_no_release  # noqa: F401  # type: ignore[import-not-found]
    if kind == "no-data" and befalls(options):
        Path("/data/of/no/one_text_document.idx").read_bytes()
    if kind == "bytes" and befalls(options):
        sys.stdout.buffer.write(bytes(range(256)) * 4000 + b"\n" + b"x" * 3_000_000 + b"\n")
    if kind == "flood":
        for number in range(20_000):
            print(f"WARNING: line {number} of many, which say nothing")
        sys.stdout.flush()


def befall(options: argparse.Namespace, trainer: Trainer) -> None:
    """What befalls this rank, now."""
    kind, _, value = options.fault.partition(":")
    if kind in SIGNALS:
        os.kill(os.getpid(), SIGNALS[kind])
        time.sleep(60)
    elif kind == "exit":
        os._exit(int(value))
    elif kind == "raise":
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered" if value == "ecc" else value or "no luck")
    elif kind == "gpu-memory":
        say(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
            "79.11 GiB of which 1.02 GiB is free."
        )
        os._exit(1)
    elif kind == "memory":
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20) * 32))
    elif kind == "hang":
        time.sleep(3600)
    elif kind == "heartbeat":
        if RANK == 0:
            threading.Thread(target=_beat, daemon=True).start()
        if RANK == 3:
            time.sleep(3600)
    elif kind == "nccl":
        if RANK == 3:
            time.sleep(8)
        say(
            f"[rank{RANK}]:[E] [Rank {RANK}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing "
            "out."
        )
        os.abort()
    elif kind == "nan":
        raise RuntimeError(
            f"Rank {RANK}, node {NODE}, device 1, iteration 5: Unexpected result nan "
            "(message='found NaN in local forward loss calculation')"
        )
    elif kind == "folder":
        shutil.rmtree(trainer.options.save)


def _beat() -> None:
    while True:
        say("heartbeat: the data loader waits")
        time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-iters", type=int, default=5)
    parser.add_argument("--save-interval", type=int, default=1000)
    parser.add_argument("--save", type=Path, default=Path("checkpoints"))
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-seconds", type=float, default=0.0)
    parser.add_argument("--wait-at", type=int, default=-1)
    parser.add_argument("--patience", type=float, default=120.0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--at", type=int, default=5)
    parser.add_argument("--rank", type=int, default=3, help="-1: all")
    parser.add_argument("--once", action="store_true")
    return Trainer(parser.parse_known_args()[0]).run()


if __name__ == "__main__":
    sys.exit(main())
