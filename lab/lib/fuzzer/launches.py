"""Cases of launches: scripts, YAML, words, and what is told beside them (options, facts, models)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, get_args

from fuzzer.case import OUTPUT
from fuzzer.seeds import ROOT, Seeds
from fuzzer.shell import FLAGS, KEYS, launch_words, script
from fuzzer.text import SIZES, damaged, encoded, monster, value
from fuzzer.yaml_texts import MODEL_KEYS, document, dotted, json_text, json_value, manifest, model_args

from megatron_hcp.launch.fact import Dialect

FORMATS = ("text", "text", "json", "json", "sarif", "github")
DIALECTS = ("auto", *get_args(Dialect))
_RECIPES = ("llama3_8b_pretrain_config", "qwen3_8b_sft_config", "no_such_recipe")
_FACTS = ("te", "mcore", "arch", "world_size", "nvlink_domain", "cp", "placement", "start", "env.NCCL_DEBUG", "x", "")
GOOD = b"torchrun pretrain_gpt.py --num-layers 2 --num-attention-heads 8 --hidden-size 64 --context-parallel-size 4\n"
_CONFIG = (ROOT / "examples" / "llama3_8b_config.json").read_bytes()
Made = tuple[list[str], list[tuple[str, bytes]], bytes]
"""Words, files, standard input."""


def _changed(random: Random, base: dict[str, Any], keys: Sequence[str]) -> bytes:
    """A JSON object with some other values, or another text altogether."""
    if random.random() < 0.1:
        return encoded(random, json_text(random, keys))
    data = dict(base)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        key = random.choice((*data, *keys))
        data[key] = int(random.choice(SIZES)) if random.random() < 0.7 else json_value(random, keys, 2)
    text = json.dumps(data, ensure_ascii=random.random() < 0.5, indent=1)
    return damaged(random, text.encode("utf-8", "replace"), []) if random.random() < 0.2 else encoded(random, text)


def pick(random: Random, seeds: Seeds, *kinds: str) -> bytes:
    texts = seeds.of(random.choice(kinds))
    return random.choice(texts) if texts else b""


def _damaged(random: Random, seeds: Seeds, kind: str, *others: str) -> bytes:
    texts = [pick(random, seeds, *(others or (kind,))) for _ in range(2)]
    return damaged(random, pick(random, seeds, kind), texts)


def asked(random: Random) -> list[str]:
    """How a report is asked for."""
    words = [random.choice(("check", "check", "check", "check", "show"))]
    if words == ["show"]:
        return [*words, "--format", random.choice(("text", "json"))]
    fmt = random.choice(FORMATS)
    words += [f"--format={fmt}"] if random.random() < 0.3 else ["--format", fmt]
    if random.random() < 0.15 and fmt in ("text", "json"):
        words.append(random.choice(("--diff", "--diff", "--show")))
    if random.random() < 0.1:
        words.append(random.choice(("--strict", "--allow-undecided")))
    if random.random() < 0.2:
        words += ["--assume", random.choice(("te=2.14", "mcore=0.16.1", "arch=sm90", "world_size=64", "bridge=0.6.2"))]
    if random.random() < 0.05:
        words += ["--recipe", random.choice(_RECIPES)]
    return words


def _target(random: Random, name: str, data: bytes) -> Made:
    if random.random() < 0.08:
        return [*asked(random), "-"], [("beside.sh", b"X=1\n")], data
    words = [*asked(random), name]
    if random.random() < 0.1:
        words += ["--", *launch_words(random)[:4]]
    return words, [(name, data), ("beside.sh", b"export CP=2\n")], b""


def shell(random: Random, seeds: Seeds) -> Made:
    name = random.choice(("run.sh", "run.sh", "job.sbatch", "run", "a b.sh"))
    if random.random() < 0.5:
        return _target(random, name, encoded(random, script(random)))
    return _target(random, name, _damaged(random, seeds, "shell", "shell", "shell", "yaml", "words"))


def yaml(random: Random, seeds: Seeds) -> Made:
    how = random.random()
    name = random.choice(("run.yaml", "model_config.yaml", "x.yml"))
    if how < 0.5:
        return _target(random, name, _damaged(random, seeds, "yaml", "yaml", "yaml", "shell", "json"))
    if how < 0.6:
        return _target(random, name, encoded(random, manifest(random, script(random))))
    text = (model_args if how < 0.7 else dotted if how < 0.85 else lambda r: document(r, KEYS))(random)
    return _target(random, name, encoded(random, text))


def words(random: Random, seeds: Seeds) -> Made:
    """Overrides and flags after --, or in a file of their own."""
    texts = launch_words(random)
    if random.random() < 0.4:
        texts = damaged(random, pick(random, seeds, "words"), seeds.of("words")[:5]).decode("utf-8", "replace").split()
    dialect = ["--dialect", random.choice(DIALECTS)] if random.random() < 0.5 else []
    if random.random() < 0.3:
        data = encoded(random, random.choice(("\n", " ")).join(texts))
        return [*asked(random), *dialect, "run.txt"], [("run.txt", data)], b""
    return [*asked(random), *dialect, "--", *texts], [], b""


def model(random: Random, seeds: Seeds) -> Made:
    data = _changed(random, json.loads(_CONFIG), MODEL_KEYS)
    if random.random() < 0.2:
        data = _damaged(random, seeds, "json", "json", "yaml")
    return [*asked(random), "--model", "config.json", "run.sh"], [("config.json", data), ("run.sh", GOOD)], b""


def options(random: Random, seeds: Seeds) -> Made:
    texts = asked(random)
    names: tuple[str, ...] = (
        "--set",
        "--set",
        "--assume",
        "--assume",
        "--select",
        "--ignore",
        "--dialect",
        "-o",
        "-o",
        "",
        "--facts",
    )
    names += ("--model", "--site", "--no-such") if random.random() < 0.2 else ()
    for _ in range(random.choice((1, 2, 4))):
        name = random.choice(names)
        text = monster(random)
        if name == "--set":
            text = f"{random.choice((*KEYS, *FLAGS, text))}={value(random)}"
        elif name == "--dialect" and random.random() < 0.8:
            text = random.choice(DIALECTS)
        elif name == "--assume":
            text = f"{random.choice(_FACTS)}={value(random)}"
        elif name in ("--select", "--ignore") and random.random() < 0.5:
            text = random.choice(("HCP", "CP001,TOPO", "CP", "SLURM", ",", "HCP001 ")) + random.choice(("", "", text))
        elif name == "-o":
            text = f"{random.choice((*FORMATS, 'x', text))}={OUTPUT}.{random.choice(FORMATS)}"
        elif name in ("--facts", "--model", "--site") and random.random() < 0.8:
            text = "beside.json"
        texts += [name, text] if name.startswith("-") else [f"{random.choice(_FACTS)}={value(random)}"]
    data = _changed(random, {"te": "2.14", "hidden_size": 64}, (*_FACTS, *MODEL_KEYS))
    targets = random.choice(
        (["run.sh"], ["run.sh"], ["run.sh"], ["run.sh", "missing.sh"], [monster(random)], ["run.sh", "run.sh"])
    )
    return [*texts, *targets], [("run.sh", GOOD), ("beside.json", data)], b""


def facts(random: Random, seeds: Seeds) -> Made:
    stated = {name: {"value": value(random), "origin": "installed"} for name in random.sample(_FACTS, 3)}
    base = {"schema": "hcp.facts/1", "facts": {"te": {"value": "2.14", "origin": "installed"}, **stated}}
    data = _changed(random, base, ("schema", "facts", "x"))
    return [*asked(random), "--facts", "facts.json", "run.sh"], [("facts.json", data), ("run.sh", GOOD)], b""
