"""Cases of everything that is not a launch: site files, rendered jobs, logs, skills, lengths, groups, names."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from functools import partial
from random import Random

from fuzzer.case import OUTPUT
from fuzzer.doors import LOGS
from fuzzer.launches import GOOD, Made, asked, pick
from fuzzer.seeds import Seeds
from fuzzer.shell import launch_words, script
from fuzzer.text import damaged, encoded, monster, value
from fuzzer.watch import DECOY
from fuzzer.yaml_texts import CARD_KEYS, SITE_KEYS, STEP_KEYS, document, json_text, json_value, scalar

_SITE = b"arch: sm90\nnodes: 2\ngpus_per_node: 8\ntime: 4:00:00\nmodules: [a, b]\nenv: {A: b}\nfacts: {te: 2.14}\n"


def site(random: Random, seeds: Seeds) -> Made:
    data = encoded(random, document(random, SITE_KEYS))
    if random.random() < 0.8:
        data = _SITE + b"".join(
            f"{random.choice(SITE_KEYS)}: {scalar(random)}\n".encode("utf-8", "replace")
            for _ in range(random.choice((0, 1, 1, 2)))
        )
        data = damaged(random, data, []) if random.random() < 0.5 else data
    if random.random() < 0.4:
        return [*asked(random), "--site", "site.yaml", "run.sh"], [("site.yaml", data), ("run.sh", GOOD)], b""
    texts = ["render", "--site", "site.yaml", "--start", random.choice(("srun", "torchrun", "ft_launcher", "ray"))]
    return [*texts, *_written(random), "run.sh"], [("site.yaml", data), ("run.sh", GOOD)], b""


def _written(random: Random) -> list[str]:
    return ["-o", f"{OUTPUT}.sbatch"] if random.random() < 0.3 else []


def render(random: Random, seeds: Seeds) -> Made:
    texts = ["render", "--start", random.choice(("srun", "srun", "torchrun", "ft_launcher", "ray", "verify"))]
    texts += (
        ["--nodes", "2", "--gpus-per-node", "8", "--time", "4:00:00", "--arch", "sm90"] if random.random() < 0.8 else []
    )
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        name = random.choice(SITE_KEYS)
        text = value(random) if random.random() < 0.5 else f"{random.choice(('A', 'HF_TOKEN', 'te'))}={monster(random)}"
        texts += [f"--{name.replace('_', '-')}", text]
    texts += _written(random)
    if random.random() < 0.3:
        return [*texts, "--", *launch_words(random)], [], b""
    target = random.choice(("run.sh", "run.sh", "run.sh", "run.sh", "hierarchical-context-parallel", monster(random)))
    return [*texts, target], [("run.sh", encoded(random, script(random)) if random.random() < 0.5 else GOOD)], b""


def packed_log(random: Random, name: str, log: bytes) -> tuple[str, bytes]:
    """The log as rotation packs it: whole, damaged, or under another packer's name."""
    suffix, pack = random.choice(
        ((".gz", partial(gzip.compress, mtime=0)), (".bz2", bz2.compress), (".xz", lzma.compress))
    )
    data = pack(log)
    if random.random() < 0.4:
        data = damaged(random, data, [pack(b"x" * 10_000_000)])
    return name + (suffix if random.random() < 0.9 else random.choice((".gz", ".bz2", ".xz"))), data


def triage(random: Random, seeds: Seeds) -> Made:
    from support.made_logs import made_log

    logs = []
    for number in range(random.choice((1, 1, 1, 2, 3))):
        log = b"\n".join(made_log(random.randrange(10**9)) for _ in range(random.choice((1, 1, 3))))
        if random.random() < 0.3:
            log = damaged(random, log, [pick(random, seeds, "log"), made_log(random.randrange(10**9))])
        name = random.choice((f"{number}.log", *LOGS))
        if random.random() < 0.15:
            name, log = packed_log(random, name, log)
        logs.append((f"logs/{name}", log))
    texts = ["triage", "--format", random.choice(("text", "json"))]
    if random.random() < 0.2:
        texts += ["--assume", f"{random.choice(('world_size', 'arch', 'cp', 'x'))}={value(random)}"]
    if random.random() < 0.2:
        texts += ["--launch", random.choice(("run.sh", "run.sh", "missing", monster(random)))]
    if random.random() < 0.1:
        return [*texts, "-"], [("run.sh", GOOD)], logs[0][1]
    return [*texts, *random.choice((["logs"], [name for name, _ in logs]))], [*logs, ("run.sh", GOOD)], b""


def card(random: Random, seeds: Seeds) -> Made:
    """A skill from elsewhere: its card, its SKILL.md, its record."""
    how = random.random()
    card_text, skill_text, record = random.choice([*zip(*map(seeds.of, ("card", "skill", "record")))])
    name = json.loads(record)["skill"] if random.random() < 0.9 and record else "x"
    if how < 0.35:
        card_text = damaged(random, card_text, [pick(random, seeds, "card", "yaml")])
    elif how < 0.55:
        card_text = encoded(random, document(random, (*CARD_KEYS, *STEP_KEYS)))
    elif how < 0.8:
        front, mark, body = skill_text.partition(b"\n---\n")
        front = damaged(random, front, [card_text])
        skill_text = front + mark + (body if random.random() < 0.7 else damaged(random, body, [card_text]))
    elif how < 0.9:
        keys = ("name", "description", "metadata", "license", "allowed-tools", "compatibility")
        skill_text = b"---\n" + encoded(random, document(random, keys)) + b"---\n# x\n"
    else:
        record = encoded(random, json_text(random, ("schema", "skill", "steps", "status", "exit")))
    needs = f"  needs: {{packages: [{random.choice((DECOY, DECOY + '.sub', 'this.x', 'torch'))}]}}\n"
    if random.random() < 0.2:
        card_text += b"\nverify:\n- id: x\n  run: [python, x.py]\n  level: cpu\n  timeout_s: 5\n" + needs.encode()
    files = [(f"{name}/config/card.yaml", card_text), (f"{name}/SKILL.md", skill_text)]
    files.append((f"{name}/config/verified.json", record))
    # The plain name is that of the pack's own skill.
    name = f"./{name}"
    texts = random.choice(
        (
            ["skills", "validate", name, "--format", random.choice(("text", "json"))],
            ["skills", "show", name, "--format", "json"],
            ["skills", "install", name, "--to", f"{OUTPUT}-skills"],
            ["verify", "--list", name, "--format", random.choice(("text", "json"))],
            ["verify", "--dry-run", f"{name}:{random.choice(('x', monster(random)))}", "--format", "json"],
            ["verify", name],
        )
    )
    return texts, files, b""


_GOOD_WORDS = {
    "--field": ("length", "tokens"),
    "--tp": ("1", "2"),
    "--cost": ("linear=1,comm=2", "quadratic=1e-5"),
    "--groups": ("pow2", "main", "dev"),
    "--policy": ("balanced",),
}


def lengths(random: Random, seeds: Seeds) -> Made:
    numbers = [
        random.choice((str(random.randint(1, 40_000)), str(random.randint(1, 400)), value(random))) for _ in range(9)
    ]
    how = random.random()
    if how < 0.3:
        data = encoded(random, random.choice((",", " ", "\n", ", ")).join(numbers[: random.randint(1, 9)]))
    elif how < 0.7:
        data = encoded(
            random, "\n".join(json_text(random, ("length", "tokens", "a")) for _ in range(random.randint(1, 4)))
        )
    else:
        data = damaged(random, pick(random, seeds, "text"), seeds.of("words")[:3])
    if random.random() < 0.2:
        data = json.dumps([json_value(random, ("length", "x"), 2) for _ in range(6)]).encode()
    texts = ["dcp", "plan", "--world-size", random.choice(("8", "8", "64", "1", "12", value(random)))]
    texts += ["--max-seqlen", random.choice(("8192", "8192", "16384", value(random)))]
    for name in ("--field", "--tp", "--cost", "--groups", "--policy"):
        if random.random() < 0.12:
            texts += [name, random.choice((*_GOOD_WORDS[name], *_GOOD_WORDS[name], monster(random)))]
    texts += [word for word in ("--compare", "--no-sequence-parallel") if random.random() < 0.15]
    texts += [f"--{kind}={OUTPUT}.{kind}" for kind in ("svg", "html") if random.random() < 0.05]
    texts += ["--format", random.choice(("text", "json")), "--lengths"]
    how = random.random()
    if how < 0.15:
        return [*texts, data.decode("utf-8", "surrogateescape")[:3000]], [], b""
    if how < 0.3:
        return [*texts, "-"], [], data
    return [*texts, "lengths.txt"], [("lengths.txt", data)], b""


def groups(random: Random, seeds: Seeds) -> Made:
    if random.random() < 0.2:
        texts = ["dcp", "weights", "--world-size", random.choice(("8", value(random)))]
        for _ in range(random.randint(1, 3)):
            texts += ["--sizes", random.choice(("8", "4,2,1,1", "4,4", monster(random)))]
        return [*texts, "--format", random.choice(("text", "json"))], [], b""
    texts = ["groups", "--world-size", random.choice(("32", "32", "64", "1024", value(random)))]
    for name in ("tp", "cp", "pp", "ep", "etp", "gtp", "gpus-per-node", "nvlink-domain", "rank"):
        if random.random() < 0.25:
            texts += [f"--{name}", random.choice(("1", "2", "4", "8", "16", value(random)))]
    if random.random() < 0.5:
        texts += ["--hcp", random.choice(("8,2", "4,2", "2,2,2", value(random)))]
    if random.random() < 0.2:
        texts += ["--order", random.choice(("tp-cp-ep-dp-pp", "cp-tp", monster(random)))]
    texts += [f"--svg={OUTPUT}.svg"] if random.random() < 0.05 else []
    return (
        [
            *texts,
            *random.choice(([], ["--all"], ["--placement", "cyclic"])),
            "--format",
            random.choice(("text", "json")),
        ],
        [],
        b"",
    )


def commands(random: Random, seeds: Seeds) -> Made:
    """Names of commands, rules, skills and folders."""
    word = monster(random)
    fmt = ["--format", random.choice(("text", "json"))]
    return (
        random.choice(
            (
                ["explain", random.choice(("HCP001", "CP", word)), *fmt],
                ["explain", "--all", "-o", f"{OUTPUT}-pages"] if random.random() < 0.02 else ["explain", word, word],
                ["verify", "--list", word, *fmt],
                ["skills", random.choice(("show", "validate")), word, *fmt],
                ["skills", "install", word, "--to", f"{OUTPUT}-skills"],
                ["anchors", "--repo", f"{random.choice(('verl', 'megatron-lm', word))}=sources"],
                ["anchors", "--sources", "sources", *fmt],
                [word, word],
                [random.choice(("check", "show", "render", "triage", "dcp", "groups")), word, word],
            )
        ),
        [("sources/megatron_core-0.16.1/megatron/core/parallel_state.py", encoded(random, f"def f({word}): pass\n"))],
        b"",
    )
