"""Words for Megatron-LM's parser alone, drawn over all its options, against rules KEY006 to KEY008."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from agree.megatron_lm import branch_of
from agree.process import Upstream
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.rules.registry import BY_ID

RULES = tuple(BY_ID[name] for name in ("KEY006", "KEY007", "KEY008"))
_WORDS = "1 2 0 -1 8 4096 1_000 4096.0 1e3 0.5 -0.5 .5 1e-5 -1e-5 nan inf 0x10 x true false True none a,b".split()
_WORDS += ["", " 8", "1 2", "-", "-x"]


def compare_words(checkout: Path, commands: int, seed: int) -> bool:
    """Prints how often the parser and the rules refuse the same words; whether nothing is refused by the rules alone.

    Asked twice: with the version stated, and without it, when an error means that no release takes the words.
    """
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    version, branch = upstream.ready["version"], branch_of(upstream.ready["options"])
    rng, counts = random.Random(seed), Counter[str]()
    for _ in range(commands):
        words = drawn(rng, upstream.ready["grammar"])
        answer = upstream.ask({"words": words})["refusal"]
        for stated in ((f"mcore={version}", f"mcore_branch={branch}"), ()):
            kind = "stated" if stated else "unstated"
            verdict = f"{kind}: {_ours(words, stated)} here, {'refused' if answer else 'taken'} upstream"
            counts[verdict] += 1
            if verdict.startswith("stated: fine") if answer else "fine" not in verdict:
                print(f"{verdict}: {words} {answer['text'][:150] if answer else ''}")
    upstream.close()
    print(f"megatron-lm {version} ({branch}):")
    for verdict, count in sorted(counts.items()):
        print(f"{count:8d}  {verdict}")
    return not any(verdict.endswith("taken upstream") and ": error" in verdict for verdict in counts)


def drawn(rng: random.Random, grammar: Mapping[str, str]) -> list[str]:
    """One to four options, mostly with words that they take."""
    words: list[str] = []
    for key in rng.sample(sorted(set(grammar) - {"help"}), rng.choice((1, 1, 2, 4))):
        option = f"--{key.replace('_', '-')}" if rng.random() < 0.97 or "_" not in key else f"--{key}"
        following = _following(rng, grammar[key])
        if following and rng.random() < 0.2:
            words += [f"{option}={following[0]}", *following[1:]]
        else:
            words += [option, *following]
    return words


def _following(rng: random.Random, takes: str) -> list[str]:
    takes = takes.partition("^")[0]
    right = rng.random() < 0.6
    if takes == "switch":
        return [] if right else [rng.choice(_WORDS)]
    count = takes[: len(takes) - len(takes.lstrip("?*+0123456789"))]
    kind, *choices = takes[len(count) :].split("|")
    number = int(count) if count.isdecimal() else {"": 1, "?": 1}.get(count, rng.choice((1, 2, 3)))
    number = number if right or rng.random() < 0.6 else rng.choice((0, 1, 2, 3))
    of = choices or {"int": ["1", "8", "-1", "0"], "float": ["1", "0.5", "1e-5", "inf"]}.get(kind, ["x", "1", "a/b"])
    pool = of if right else [*of, *(word.upper() for word in of), *_WORDS]
    return [rng.choice(pool) for _ in range(number)]


def _ours(words: list[str], stated: tuple[str, ...]) -> str:
    try:
        reading = read_target("", dialect="mlm", words=tuple(words))
        report = check_launch(build_launch(reading, assumed=parse_assumptions(stated)), RULES, fixes=False)
    except HcpError:
        return "input error"
    found = {finding.severity for finding in report.findings}
    return "error" if "error" in found else "warning" if found else "fine"
