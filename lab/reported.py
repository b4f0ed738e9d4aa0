"""Publicly reported faults through `hcp check`: `python lab reported CASES.jsonl`.

A line of the file is one case: `id`, `source` (repository and number), `title`, `kind` (only `check` runs here),
`files` (name to text), `argv` (after `hcp check`; `{dir}` is the folder of the files), `cause` in words, `reach`
(whether a static check can know it), `must`, and `expect`, the ids of rules that would be right. A case with `must:
error or warning` is caught if a finding has the right cause: an id of `expect`, the number of the report, or half of
the words of `cause` or of the report's title, in what the finding says and what its rule cites. Those by words, and
those of severity info, are marked, so that a person can judge them. A mended launch (`must: silent`) with an error or
a warning is a false alarm. The exit status is 1 below `--wanted` or at any false alarm.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from program import parser_of

_SILENT = frozenset(("silent", "nothing"))
_SMALL = frozenset(
    "the and for with without that this its are not has have from than then more into out only before after of in on "
    "is it to at by as no be was an or does do".split()
)
_ENOUGH = 0.5


class Judged(NamedTuple):
    """The outcome of a case: `caught`, `missed`, `fine`, `false alarm` or `not run`, and why."""

    outcome: str
    why: str


def words_of(text: str) -> frozenset[str]:
    """The meaningful words of a text, in lower case and without plural endings.

    >>> sorted(words_of("The middle stages ignore cu_seqlens"))
    ['cu_seqlen', 'ignore', 'middle', 'stage']
    """
    found = re.findall(r"[a-z][a-z0-9_+]+|\d+\.\d+", text.lower())
    return frozenset(word.removesuffix("s") for word in found if word not in _SMALL)


def numbers_of(source: str) -> frozenset[str]:
    """The reports that a text names: `NVIDIA/Megatron-LM#6746` is `megatron-lm#6746`.

    >>> sorted(numbers_of("NVIDIA-NeMo/Megatron-Bridge#4228 / #4354"))
    ['megatron-bridge#4228', 'megatron-bridge#4354']
    """
    found, repository = set(), ""
    for name, number in re.findall(r"([\w.-]+(?:/[\w.-]+)?)?#(\d+)", source):
        repository = name.rpartition("/")[2].lower() if name else repository
        found.add(f"{repository}#{number}")
    return frozenset(found)


def text_of(finding: Mapping[str, Any]) -> str:
    """All words of a finding: its own, and upstream's that its rule cites."""
    parts = [finding[name] for name in ("title", "message", "found", "expected")]
    return " ".join((*parts, *finding["keys"], *(source.get("contains", "") for source in finding["source"])))


def judge(case: Mapping[str, Any], status: int, said: Mapping[str, Any], why_of: Mapping[str, str]) -> Judged:
    """How good the answer of `hcp check --format json` to a case is."""
    findings = said.get("findings", ())
    ids = " ".join(item["rule"] for item in findings)
    must = case["must"]
    if must.startswith("read"):
        return Judged("fine" if status != 3 else "missed", "refused" if status == 2 else f"read, exit {status}")
    if must in _SILENT or not case["reach"]:
        if must == "silent" and any(item["severity"] != "info" for item in findings):
            return Judged("false alarm", ids)
        return Judged("fine" if must == "silent" else "not run", "" if must == "silent" else "out of reach")
    wordings = [words_of(case[name]) for name in ("cause", "title")]
    for item in findings:
        name = item["rule"] + (" (info)" if item["severity"] == "info" else "")
        text = f"{text_of(item)} {why_of.get(item['rule'], '')}"
        if item["rule"] in case["expect"]:
            return Judged("caught", name)
        if numbers_of(case["source"]) & numbers_of(text):
            return Judged("caught", f"{name}, by the report")
        for wanted in wordings:
            shared = wanted & words_of(text)
            if len(shared) >= max(2, _ENOUGH * len(wanted)):
                return Judged("caught", f"{name}, by {len(shared)} of {len(wanted)} words: {' '.join(sorted(shared))}")
    return Judged("missed", _why_missed(status, said, ids))


def _why_missed(status: int, said: Mapping[str, Any], ids: str) -> str:
    if status == 2:
        return f"not read: {said.get('error', {}).get('found', '')}"
    if ids:
        return f"only other findings: {ids}"
    open_facts = sorted({name for item in said.get("undecided", ()) for name in item["needs"]})
    if open_facts:
        return f"undecided, needs {', '.join(open_facts[:6])}"
    unchecked = [item["rule"] for item in said.get("not_checked", ())]
    return f"silent; not checked: {' '.join(unchecked) or 'nothing'}"


def answer_to(case: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The exit status of `hcp check` on a case, and the JSON that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case["files"].items():
            Path(folder, name).write_text(text, encoding="utf-8")
        argv = [word.replace("{dir}", folder) for word in case["argv"]]
        done = subprocess.run(
            [sys.executable, "-m", "megatron_hcp", "check", "--format", "json", "--full", *argv],
            capture_output=True,
            text=True,
        )
    return done.returncode, json.loads(done.stdout or "{}")


def whys() -> dict[str, str]:
    """By rule, its page's explanation."""
    from megatron_hcp.rules.registry import RULES

    return {rule.id: rule.why for rule in RULES}


def cases_in(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("cases", type=Path, metavar="CASES.jsonl")
    parser.add_argument("--wanted", type=float, default=0.85, help="the share that must be caught (default 0.85)")
    options = parser.parse_args()
    if not options.cases.is_file():
        parser.error(f"{options.cases} is no file")
    why_of = whys()
    outcomes: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for case in cases_in(options.cases):
        if case["kind"] != "check":
            outcomes["not run"] += 1
            continue
        result = judge(case, *answer_to(case), why_of)
        outcomes[result.outcome] += 1
        if case["must"] == "error or warning" and case["reach"]:
            judged[result.outcome] += 1
        print(f"{result.outcome:<12} {case['id']:<18} {result.why}")
    total = judged.total()
    share = judged["caught"] / total if total else 1.0
    print(", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())))
    print(f"{judged['caught']} of {total} reported faults caught with the right cause: {share:.0%}")
    return int(share < options.wanted or outcomes["false alarm"] > 0)


if __name__ == "__main__":
    sys.exit(main())
