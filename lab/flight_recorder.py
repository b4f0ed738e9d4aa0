"""What `hcp triage` finds in dumps of torch's flight recorder, beside torch's own analyser (`torchfrtrace`).

Four processes of torch's gloo go wrong in a known way, each leaves the dump that torch writes, and both read the same
folder. Torch's reader crashes on gloo's own dumps, so that the names of groups and calls are written as NCCL's are. An
answer is right if it names the ranks that went wrong, no other rank, and what differs. The exit status is 1 if hcp is
right less often than torch's analyser, or where that is right and hcp is not.

python lab flight_recorder
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from program import parser_of

WORLD, TIMEOUT_S, WAIT_S = 4, 30, 4


class Case(NamedTuple):
    """How a job goes wrong: the ranks that do, and what differs (empty: they never came)."""

    ranks: frozenset[int]
    kind: str
    lost: frozenset[int] = frozenset()
    """Ranks of which no dump is there."""


CASES = {
    "a rank never comes": Case(frozenset({2}), ""),
    "two ranks never come": Case(frozenset({1, 3}), ""),
    "a rank never comes, and another left no dump": Case(frozenset({2}), "", frozenset({0})),
    "a rank calls another collective": Case(frozenset({1}), "type"),
    "a rank has other sizes": Case(frozenset({3}), "size"),
    "a rank has another data type": Case(frozenset({0}), "dtype"),
    "a rank never comes to a group of two": Case(frozenset({3}), ""),
    "a rank of a group of two holds up all": Case(frozenset({3}), ""),
    "all is well": Case(frozenset(), ""),
}


def step(name: str, rank: int, dist: Any, torch: Any, pair: Any) -> None:
    """What a rank calls, which never ends where ranks differ."""
    sent = torch.ones(8)
    for _ in range(2):
        dist.all_reduce(sent)
    case = CASES[name]
    is_wrong = rank in case.ranks
    if "group of two" in name:
        if rank >= 2 and not is_wrong:
            dist.all_reduce(sent, group=pair)
        if is_wrong or name.endswith("to a group of two"):
            return
    elif is_wrong and not case.kind:
        return
    elif is_wrong and case.kind == "type":
        dist.broadcast(sent, 0)
    else:
        other = torch.ones(4) if case.kind == "size" else torch.ones(8, dtype=torch.int32)
        dist.all_reduce(other if is_wrong else sent)
    dist.all_reduce(sent)


def work(rank: int, name: str, port: int, folder: str, gate: Any) -> None:
    """One rank: starts, goes wrong, and writes its dump while it waits; at the gate all wait for each other."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_FR_BUFFER_SIZE="200")
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace

    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=timedelta(seconds=TIMEOUT_S))
    pair = dist.new_group([2, 3])
    waiting = threading.Thread(target=quietly, args=(lambda: step(name, rank, dist, torch, pair),), daemon=True)
    gate.wait()
    waiting.start()
    waiting.join(WAIT_S)
    if rank not in CASES[name].lost:
        said = pickle.loads(_dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False))
        Path(folder, f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(as_nccls(said, rank), 2))
    gate.wait()  # a rank that ends would free the others
    os._exit(0)


def quietly(call: Callable[[], None]) -> None:
    """Calls it; ranks that lose another raise."""
    try:
        call()
    except RuntimeError:
        return


def as_nccls(said: dict[str, Any], rank: int) -> dict[str, Any]:
    """A dump with the names that NCCL's have; gloo states no groups."""
    names = {entry["pg_id"]: "0" for entry in said["entries"][:1]}
    for entry in said["entries"]:
        group = names.setdefault(entry["pg_id"], "1")
        entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
        entry["process_group"] = [group, "pair" if group == "1" else "default_pg"]
    said["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(WORLD)))}}
    if rank >= 2:
        said["pg_config"]["1"] = {"name": "1", "desc": "pair", "ranks": "[2, 3]"}
    return said


_KINDS = {"COLLECTIVE_TYPE_MISMATCH": "type", "SIZE_OR_SYNTAX_MISMATCH": "size", "COLLECTIVE_DTYPE_MISMATCH": "dtype"}


def torchs(folder: str) -> tuple[frozenset[int], str]:
    """The ranks that torch's analyser names in its first finding, and what it says differs."""
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "nccl_trace_rank_"]
    done = subprocess.run(words, capture_output=True, text=True)
    text = done.stdout + done.stderr
    found = re.search(
        r"Culprit rank (?P<rank>\d+); Error type: (?P<kind>\w+)|missing ranks: \{(?P<ranks>[\d, ]*)\}", text
    )
    if found is None:
        return frozenset(), "crashed" if done.returncode else ""
    if found["rank"]:
        return frozenset({int(found["rank"])}), _KINDS.get(found["kind"], found["kind"])
    return frozenset(int(rank) for rank in found["ranks"].split(",")), ""


def hcps(folder: str) -> tuple[frozenset[int], str]:
    """The same of `hcp triage`."""
    words = [sys.executable, "-m", "megatron_hcp", "triage", "--format", "json", folder]
    said = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["collective"]
    return (frozenset(), "") if said is None else (frozenset(said["missing"]), said["mismatch"] or "")


def main() -> None:
    parser_of(__doc__).parse_args()
    right = {"torch": 0, "hcp": 0}
    worse = False
    start = multiprocessing.get_context("fork")
    for place, (name, case) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            gate = start.Barrier(WORLD)
            said = [(rank, name, 29_850 + place, folder, gate) for rank in range(WORLD)]
            ranks = [start.Process(target=work, args=words) for words in said]
            for one in ranks:
                one.start()
            for one in ranks:
                one.join()
            found = {"torch": torchs(folder), "hcp": hcps(folder)}
        is_right = {who: said == (case.ranks, case.kind) for who, said in found.items()}
        for who in right:
            right[who] += is_right[who]
        worse = worse or (is_right["torch"] and not is_right["hcp"])
        told = "; ".join(
            f"{who} {'right' if is_right[who] else f'{sorted(said[0])} {said[1]}'}" for who, said in found.items()
        )
        print(f"{name}: {told}", flush=True)
    print(f"of {len(CASES)}: torch's analyser {right['torch']} right, hcp {right['hcp']}")
    sys.exit(worse or right["hcp"] < right["torch"])


if __name__ == "__main__":
    main()
