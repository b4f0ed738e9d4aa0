"""`python -m megatron_hcp.pretend`: a request on standard input, a line of JSON for each rank on standard output."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import warnings
from typing import IO, Any

from megatron_hcp.pretend.stages import limit


def main() -> None:
    """Imports upstream once, and runs each rank in a fork of its own, within its limits."""
    given: dict[str, Any] = json.load(sys.stdin)
    given["te"] = given["te"] and tuple(given["te"])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    from megatron_hcp.pretend.run import Request, prepare

    request = Request(**{**given, "roots": tuple(given["roots"])})
    sys.argv = ["pretrain_gpt.py"]
    try:
        prepare(request)
    except BaseException as error:
        from megatron_hcp.pretend.verdict import answer

        told = answer(error)
        told["missing"] = told["missing"] or f"imports: {type(error).__name__}"
        _say(out, {"stage": "imports", "error": told})
        os._exit(0)
    gc.freeze()  # what is imported stays: no rank's collector looks at it again
    for rank in request.ranks:
        _fork(request, rank, out)
    os._exit(0)


def _fork(request: Any, rank: int, out: IO[str]) -> None:
    pid = os.fork()
    if pid == 0:
        from megatron_hcp.pretend.run import run
        from megatron_hcp.pretend.stages import PROGRESS

        limit(request.seconds, request.memory)
        PROGRESS.report = lambda stage: _say(out, {"rank": rank, "reached": stage})
        _say(out, {"rank": rank, **run(request, rank)})
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
        _say(out, {"rank": rank, "ended": name})


def _say(out: IO[str], told: dict[str, Any]) -> None:
    print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    main()
