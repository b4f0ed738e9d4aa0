"""What hcp reads in the scripts of ms-swift, slime and miles, beside what their own parsers make of the same words.

bash itself runs each script in the sandbox of lab/scripts.py, so the words are those that the framework would get.
Its parser runs in a process of its own (`HCP_AGREE_PYTHON` names an interpreter with torch, megatron-core and
transformers). Compared is every fact that has an option: as the launch states it, as a default leaves it, or as it
follows from others.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts import Sandbox, scripts

from agree.process import Upstream
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.dialects.table import FACTS, index_of
from megatron_hcp.launch.fact import Beside, Launch, Setting
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.readers.script import read_launches

_SWIFT = re.compile(r"(?:^|[/.])swift[/.]cli[/.]_megatron[/.](sft|pt|rlhf)(?:\.py)?$")
_SLIME = re.compile(r"(?:^|/)train(?:_async|_multi_turn)?\.py$")


def compare_parser(checkout: Path, megatron_lm: Path | None) -> tuple[Counter[str], list[str]]:
    """(launches, and facts equal, different, unknown and so on; one line for each difference) of a checkout."""
    is_swift = (checkout / "swift").is_dir()
    names = [str(checkout.resolve()), *([] if is_swift or megatron_lm is None else [str(megatron_lm.resolve())])]
    upstream = Upstream("ms_swift_upstream.py" if is_swift else "slime_upstream.py", *names)
    counts: Counter[str] = Counter()
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder))
        for project, script in scripts([checkout.resolve().parent]):
            if project != checkout.resolve():
                continue
            launches = list(_launches(script, project, "ms-swift" if is_swift else "slime"))
            for question in _questions(sandbox, project, script, is_swift) if launches else ():
                answer = upstream.ask(question)
                if "refusal" in answer:
                    counts["launches that the parser refuses"] += 1
                    lines.append(f"refused {script.relative_to(project)}: {answer['refusal'][:200]}")
                    continue
                told = min((_compared(launch, answer["values"]) for launch in launches), key=lambda one: len(one[1]))
                counts += told[0]
                counts["launches"] += 1
                lines += [f"different {script.relative_to(project)}: {line}" for line in told[1]]
    upstream.close()
    return counts, lines


def _launches(script: Path, project: Path, dialect: str) -> Iterator[Launch]:
    """The launches of a script that are in the framework's dialect."""
    try:
        sources = (str(project / "scripts"), str(project))  # where slime's and miles' scripts keep what they source
        beside = Beside(str(script.parent), sources)
        readings = read_launches(script.read_text(encoding="utf-8"), str(script), beside=beside)
    except (HcpError, OSError, UnicodeDecodeError):
        return
    for reading in readings:
        if reading.dialect == dialect:
            yield build_launch(reading)


def _questions(sandbox: Sandbox, project: Path, script: Path, is_swift: bool) -> Iterator[dict[str, Any]]:
    """The commands of a script that start the framework's training, as its process is asked about them."""
    for command in sandbox.commands(project, script) or ():
        words = command.words
        if is_swift and words[:1] == ["megatron"] and words[1:2] and words[1] in ("sft", "pt", "rlhf"):
            yield {"program": words[1], "words": words[2:]}
            continue
        for place, word in enumerate(words):
            found = (_SWIFT if is_swift else _SLIME).search(word)
            if found and place + 1 < len(words):
                yield {"program": found.group(1) if is_swift else "train", "words": words[place + 1 :]}
                break


def _compared(launch: Launch, values: Mapping[str, Any]) -> tuple[Counter[str], list[str]]:
    """How many facts are equal, different, unknown to hcp, or follow from others; and the different ones."""
    counts: Counter[str] = Counter()
    lines = []
    for key, entry in index_of(launch.reading.dialect).items():
        fact = launch.facts.get(entry.fact)
        if key not in values or (fact is not None and fact.key is not None and fact.key != key):
            continue
        if fact is None:
            counts["unknown" if entry.fact in launch.unknown or launch.reading.unseen else "without a value"] += 1
        elif fact.origin not in ("launch", "default") and (fact.origin != "derived" or values[key] is None):
            counts[fact.origin] += 1
        elif _is_same(FACTS[entry.fact], key, values[key], fact.value, entry.negated):
            counts["equal"] += 1
        else:
            counts["different"] += 1
            lines.append(f"{key}: {values[key]!r} there, {fact.value!r} ({fact.origin}) here")
    return counts, lines


def _is_same(spec: FactSpec, key: str, theirs: Any, ours: Any, negated: bool) -> bool:
    """Whether the parser's value is the fact's; an empty list is none, and a list of one word is that word."""
    raw = tuple(theirs) if isinstance(theirs, list) else theirs
    try:
        value = coerce(spec, Setting(key, theirs, None), negated)
    except HcpError:
        return False
    return any(ours == same or (same == () and ours is None) or same == (ours,) for same in (value, raw))
