"""`python -m megatron_hcp.pretend.real`: a request on standard input, a line of JSON for each pair of runs."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import warnings
from typing import Any

from megatron_hcp.pretend.stages import limit

_LOOPBACK = b"lo"
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


def main() -> None:
    """Imports upstream once; each process of each run is a fork, within its limits."""
    given: dict[str, Any] = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    _loopback_up()
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", GLOO_SOCKET_IFNAME=_LOOPBACK.decode())
    import torch

    torch.set_num_threads(1)
    from megatron_hcp.pretend.real import rank
    from megatron_hcp.pretend.verdict import answer

    sys.argv = ["pretrain_gpt.py"]
    try:
        rank.prepare(tuple(given["roots"]), tuple(given["te"]))
    except BaseException as error:
        told = answer(error)
        told["missing"] = told["missing"] or f"imports: {type(error).__name__}"
        print(json.dumps({"error": told, "side": "imports"}), file=out, flush=True)
        os._exit(0)
    gc.freeze()  # what is imported stays: no process's collector looks at it again
    for pair in given["pairs"]:
        told = _pair(given, pair)
        print(json.dumps({"pair": pair["name"], **told}), file=out, flush=True)
        if told["error"] or not told["different"]:
            break  # nothing to explain
    os._exit(0)


def _pair(given: dict[str, Any], pair: dict[str, Any]) -> dict[str, Any]:
    """What came of both runs: an error and the side that has it, or what differs between them."""
    from megatron_hcp.pretend.real.compare import compare

    alone = _run(given, pair, 1)
    failed = _failed(alone)
    if failed:
        return {"side": "CP 1", "error": failed}
    parts = _run(given, pair, given["cp"])
    failed = _failed(parts)
    if failed:
        return {"side": f"CP {given['cp']}", "error": failed}
    results = compare([part["noted"] for part in parts], alone[0]["noted"])
    bad = [result for result in results if not result.error <= result.bound]
    return {
        "error": None,
        "compared": len(results),
        "largest": max(result.error for result in results),
        "different": [{**result._asdict(), "error": _finite(result.error)} for result in bad],
        "backend": parts[0]["noted"].backend,
        "losses": [parts[0]["noted"].losses, alone[0]["noted"].losses],
        "cpu_seconds": sum(part["cpu_seconds"] for part in (*parts, *alone)),
    }


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None


def _failed(parts: list[dict[str, Any]]) -> Any:
    """The first process's error; one that only lost its peers comes after one that has a reason."""
    errors = [part["error"] for part in parts if part["error"]]
    return next((error for error in errors if "gloo" not in error["message"].lower()), next(iter(errors), None))


def _run(given: dict[str, Any], pair: dict[str, Any], world: int) -> list[dict[str, Any]]:
    """What each process of one side found. The side without context parallelism takes cuDNN's attention."""
    import torch

    from megatron_hcp.pretend.real import rank

    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for number in range(world):
            asked = rank.OneProcess(
                starts=given["program"],
                words=tuple(pair["words" if world > 1 else "alone"]),
                environment=given["environment"] if world > 1 else {},
                is_flash=given["is_flash"] and world > 1,
                rank=number,
                world=world,
                store=f"{folder}/store",
                cp=given["cp"],
                is_mean_of_group=pair["is_mean_of_group"],
            )
            pid = os.fork()
            if pid == 0:
                limit(given["seconds"], given["memory"])
                torch.save(rank.run(asked), f"{folder}/{number}.part")
                os.rename(f"{folder}/{number}.part", f"{folder}/{number}")
                os._exit(0)
            pids.append(pid)
        _wait(pids, folder)
        return [_told(f"{folder}/{number}") for number in range(world)]


def _wait(pids: list[int], folder: str) -> None:
    """Until all have ended. After one that failed its peers wait for nothing: they are given a short time."""
    import torch

    left = dict(enumerate(pids))
    while left:
        pid, _ = os.wait()
        number = next(number for number, one in left.items() if one == pid)
        del left[number]
        path = f"{folder}/{number}"
        has_failed = not os.path.exists(path) or torch.load(path, weights_only=False)["error"]
        for other in left.values() if has_failed else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)


def _told(path: str) -> dict[str, Any]:
    import torch

    if os.path.exists(path):
        return dict(torch.load(path, weights_only=False))
    lost = {
        "type": "",
        "message": "gloo",
        "file": "",
        "line": 0,
        "function": "",
        "code": "",
        "missing": "an answer, within its limits",
    }
    return {"noted": None, "error": lost, "cpu_seconds": 0.0}


def _loopback_up() -> None:
    """A network namespace of one's own starts with its loopback down, and gloo needs it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        asked = struct.pack("16sh14x", _LOOPBACK, 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(one, _GET_FLAGS, asked))[1]
        fcntl.ioctl(one, _SET_FLAGS, struct.pack("16sh14x", _LOOPBACK, flags | _UP))


if __name__ == "__main__":
    main()
