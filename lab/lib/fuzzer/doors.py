"""Cases of other doors: packed data, dumps of a recorder, plans, recipes, rendered scripts, messages to `hcp mcp`."""

from __future__ import annotations

import io
import json
import pickle
import struct
from functools import cache
from random import Random
from typing import Any

from fuzzer.case import OUTPUT
from fuzzer.launches import GOOD, Made, asked, pick
from fuzzer.seeds import ROOT, Seeds
from fuzzer.shell import launch_words, script
from fuzzer.text import damaged, encoded, monster, value
from fuzzer.yaml_texts import MODEL_KEYS, json_text, json_value, manifest

_CONFIG = (ROOT / "examples" / "llama3_8b_config.json").read_bytes()
_TOOLS = ("check", "triage", "support", "plan", "explain")
_PARTS = ("/etc/passwd", "..", "SKILL.md", "references", "?part=", "context-parallel-planning")
LOGS = (
    *("train-r0-node0.log", "train-r2-node1.log", "launch-r1-srun.log", "job.log", "ray-r0-node0.log"),
    *("train-4711-r1-n1.log", "attempt_1/0/stderr.log", "rank_3.log", "slurm-4711.out"),
)
"""As rendered jobs, torchrun and Slurm name their logs."""


def kubernetes(random: Random, seeds: Seeds) -> Made:
    text = GOOD.decode() if random.random() < 0.6 else script(random)
    data = encoded(random, manifest(random, text))
    if random.random() < 0.3:
        data = damaged(random, data, [pick(random, seeds, "yaml")])
    return [*asked(random), "job.yaml"], [("job.yaml", data)], b""


def rendered(random: Random, seeds: Seeds) -> Made:
    """A script that `hcp render` wrote, damaged, as `hcp check` and `hcp render` read it again."""
    text = random.choice(_rendered())
    data = damaged(random, text, [pick(random, seeds, "shell")]) if random.random() < 0.8 else text
    words = ["render", "--start", "srun", "--nodes", "2"] if random.random() < 0.3 else asked(random)
    return [*words, "job.sbatch"], [("job.sbatch", data)], b""


@cache
def _rendered() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "tests" / "render" / "golden").glob("*.sbatch"))]


def recipe(random: Random, seeds: Seeds) -> Made:
    name = random.choice(("llama3_8b_pretrain_config", "qwen3_30b_a3b_sft_config", value(random), monster(random)))
    texts = [*asked(random), "--recipe", name, "--assume", f"bridge={random.choice(('0.4.2', '0.6.0', value(random)))}"]
    return [*texts, "--", *launch_words(random)], [], b""


def packed(random: Random, seeds: Seeds) -> Made:
    """Rows of Megatron-Bridge, and documents of Megatron's index: whole, damaged, or made of other values."""
    name, make = random.choice((("a.npy", _npy), ("a.idx", _index), ("a.parquet", _parquet), ("a.jsonl", _rows)))
    data = make(random)
    if random.random() < 0.6:
        data = damaged(random, data, [_rows(random)])
    files = [(name, data), ("run.sh", GOOD), ("metadata.json", encoded(random, json_text(random, ("pack_size", "x"))))]
    texts = random.choice(
        (
            ["pack", "check", name, "--launch", "run.sh"],
            ["pack", "check", name, "--launch", "run.sh", "--metadata", "metadata.json"],
            ["pack", "plan", "--lengths", name, "--pack-size", random.choice(("4096", value(random)))],
            ["dcp", "plan", "--world-size", "8", "--max-seqlen", "8192", "--lengths", name],
        )
    )
    return [*texts, "--format", random.choice(("text", "json"))], files, b""


def _numbers(random: Random, most: int = 8) -> list[Any]:
    numbers: list[Any] = [random.choice((0, 1, 2, 7, 100, 4096)) for _ in range(random.randint(0, most))]
    if random.random() < 0.15:
        numbers.append(random.choice((-1, 2**31, 2**63, 10**30, 1.5, None, "x", [], True)))
    return numbers


def _row(random: Random) -> dict[str, Any]:
    row: dict[str, Any] = {key: _numbers(random) for key in ("input_ids", "loss_mask", "seq_start_id")}
    if random.random() < 0.5:
        row = {"input_ids": [1, 2, 3, 4], "loss_mask": [1, 1, 1, 0], "seq_start_id": [0, 2]}
    if random.random() < 0.1:
        row[random.choice((*row, "x"))] = random.choice((None, 1, "x", {}))
    return row


def _rows(random: Random) -> bytes:
    return b"\n".join(json.dumps(_row(random)).encode() for _ in range(random.randint(1, 4)))


def _npy(random: Random) -> bytes:
    rows = [_row(random) for _ in range(random.randint(0, 4))]
    shape = random.choice((f"({len(rows)},)", "()", "(1, 2)", f"({value(random)},)", "(10**9,)"))
    kind = random.choice(("|O", "|O", "|O", "<i8", "<f4", value(random)))
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode("utf-8", "replace")
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(head), 65_535))
    return start + head + pickle.dumps(rows, protocol=random.choice((2, 3, 4, 5)))


def _index(random: Random) -> bytes:
    lengths = [random.choice((0, 1, 100, 4096, 2**31 - 1)) for _ in range(random.randint(0, 8))]
    count = random.choice((len(lengths), len(lengths), len(lengths) + 1, 2**40, 2**63))
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, random.choice((1, 4, 8, 200)), count, len(lengths) + 1)
    places = struct.pack(f"<{len(lengths)}q", *(4 * number for number in range(len(lengths))))
    documents = struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1))
    return head + struct.pack(f"<{len(lengths)}i", *lengths) + places + documents


def _parquet(random: Random) -> bytes:
    import pyarrow
    from pyarrow import parquet

    size = random.randint(1, 4)
    plain: list[list[Any]] = [[[1, 2, 3]] * size, [1, 4096, 7, 9][:size], ["x"] * size, [[[1]]] * size, [None] * size]
    names = random.sample(("input_ids", "loss_mask", "seq_start_id", "length", "tokens", "x"), random.randint(1, 4))
    columns = {name: random.choice((plain[0], *plain)) for name in names}
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), written, compression=random.choice(("none", "zstd", "snappy")))
    return written.getvalue()


def dumps(random: Random, seeds: Seeds) -> Made:
    """A folder of flight-recorder dumps, mostly with a log beside them."""
    files = []
    for rank in range(random.randint(1, 4)):
        dump = _dump(random, rank)
        data = pickle.dumps(dump, protocol=random.choice((2, 4, 5))) if random.random() < 0.5 else _as_json(dump)
        if random.random() < 0.4:
            data = damaged(random, data, [])
        files.append((f"logs/nccl_trace_rank_{rank}", data))
    if random.random() < 0.6:
        files.append((f"logs/{random.choice(LOGS)}", pick(random, seeds, "log")))
    return ["triage", "--format", random.choice(("text", "json")), "logs"], files, b""


def _as_json(dump: object) -> bytes:
    return json.dumps(dump).encode("utf-8", "replace")


def _dump(random: Random, rank: int) -> dict[str, Any]:
    entries = [
        {
            "pg_id": 0,
            "process_group": ["0", random.choice(("default_pg", monster(random)))],
            "collective_seq_id": random.choice((rank, 5, value(random))),
            "profiling_name": random.choice(("nccl:all_reduce", monster(random))),
            "state": random.choice(("scheduled", "started", "completed", monster(random))),
            "frames": [{"name": monster(random), "filename": "x.py", "line": random.choice((1, -1, 10**30))}],
        }
        for _ in range(random.randint(0, 5))
    ]
    ranks = random.choice(("[0, 1, 2, 3]", [0, 1, 2, 3], value(random), json_value(random, ("x",), 2)))
    groups = {"0": {"name": "0", "desc": random.choice(("default_pg", monster(random))), "ranks": ranks}}
    dump: dict[str, Any] = {"version": "2.10", "pg_config": groups, "entries": entries}
    if random.random() < 0.2:
        dump[random.choice(tuple(dump))] = json_value(random, ("ranks", "entries"), 3)
    return dump


def plan(random: Random, seeds: Seeds) -> Made:
    """Plans and what a model supports: from a config.json, a launch, a layout in words, a measured profile."""
    config = _CONFIG if random.random() < 0.5 else encoded(random, json_text(random, MODEL_KEYS))
    profile = encoded(random, json_text(random, ("schema", "linear_s", "quadratic_s", "device", "measured")))
    files = [("config.json", config), ("profile.json", profile), ("run.sh", GOOD)]
    if random.random() < 0.3:
        texts = ["support", random.choice(("config.json", "run.sh")), "--tp", random.choice(("1,2", value(random)))]
        return [*texts, "--format", random.choice(("text", "json"))], files, b""
    texts = ["plan", *(["run.sh"] if random.random() < 0.3 else ["--model", "config.json"])]
    sizes = {"--gpus": "8", "--seq-length": "8192", "--global-batch": "16"}
    for name, usual in sizes.items():
        texts += [name, random.choice((usual, usual, usual, value(random)))]
    texts += ["--gpu", random.choice(("h100", "h100", "b200", monster(random)))]
    layout = random.choice(
        ("tp=2 cp=4", "tp=1 cp=8 cp_comm_type=a2a+p2p hcp_sizes=4,2", f"tp={value(random)}", monster(random))
    )
    texts += random.choice(([], ["--layout", layout], ["--why-not", layout], ["--fix", layout]))
    texts += ["--profile", "profile.json"] if random.random() < 0.2 else []
    if random.random() < 0.15:
        grpo = encoded(random, script(random)) if random.random() < 0.5 else pick(random, seeds, "shell")
        files.append(("grpo.sh", grpo))
        texts = ["plan", "grpo.sh", "--gpu", "h100", "--phases"]
    texts += [f"--{kind}={OUTPUT}.{kind}" for kind in ("svg", "html") if random.random() < 0.1]
    return [*texts, "--format", random.choice(("text", "json"))], files, b""


def message(random: Random, seeds: Seeds) -> Made:
    """Lines to `hcp mcp`: `fuzzer/server.py` reads them as the server does."""
    lines = [json.dumps(_message(random, seeds)).encode("utf-8", "surrogatepass") for _ in range(random.randint(1, 3))]
    if random.random() < 0.4:
        lines = [damaged(random, line, lines).replace(b"\n", b" ") for line in lines]
    return ["mcp"], [("run.sh", GOOD)], b"\n".join(lines)


def _message(random: Random, seeds: Seeds) -> dict[str, Any]:
    number: Any = random.choice((1, "a", None, -1, 1.5, [], "\ud800", 10**400))
    if random.random() < 0.3:
        parts = (*_PARTS, value(random), monster(random))
        uri = random.choice(("hcp://skills/", "hcp://rules/", "file:///", "")) + "/".join(random.choices(parts, k=3))
        return {"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": {"uri": uri}}
    text = encoded(random, script(random)).decode("utf-8", "replace")
    given: dict[str, Any] = (
        {"text": text} if random.random() < 0.6 else {"path": random.choice(("run.sh", monster(random)))}
    )
    for key in random.sample(
        ("assume", "set", "model", "skip", "dialect", "rule", "tp", "recipe", "x"), random.randint(0, 2)
    ):
        given[key] = random.choice((value(random), [value(random)], 1, None, json_value(random, ("x",), 2)))
    arguments = {"name": random.choice((*_TOOLS, *_TOOLS, monster(random))), "arguments": given}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": arguments}
