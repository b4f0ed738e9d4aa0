"""An answer in a few lines of text, for a client that shows no structure; the whole stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

MOST_CHARACTERS = 1_500
_MORE = "... more in structuredContent"
_Answer = Mapping[str, Any]


def summary(result: _Answer) -> str:
    """The answer of a tool, in at most `MOST_CHARACTERS`: whole lines, the most important first."""
    answer = result["answer"]
    of = _BY_SCHEMA.get(str(answer.get("schema", "")).partition("/")[0], _unknown)
    lines = [*of(answer), *(f"left out: {part}" for part in result.get("cut") or ())]
    kept: list[str] = []
    room = MOST_CHARACTERS - len(_MORE) - 1
    for line in lines:
        if len(line) + 1 > room:
            return "\n".join([*kept, _MORE])
        kept.append(line)
        room -= len(line) + 1
    return "\n".join(kept)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _check(answer: _Answer) -> Iterator[str]:
    counts = answer["summary"]
    yield (
        f"{answer['target']['name']}: {answer['verdict']}: {_many(counts['error'], 'error')}, "
        f"{_many(counts['warning'], 'warning')}, {_many(counts['not_checked'], 'rule')} not checked"
    )
    for item in answer["findings"]:
        place = item["location"]
        where = f"{place['file']}:{place['line']}: " if place else ""
        yield f"{where}{item['severity']} {item['rule']}: {item['message']} ({item['found']})"
        for fix in item["fixes"][:1]:
            yield f"  fix: {' '.join(fix['overrides'])}: {fix['effect']}"
    for item in answer["undecided"]:
        yield f"undecided: {item['reason']}; {item['do']}"


def _checks(answer: _Answer) -> Iterator[str]:
    for item in answer["results"]:
        yield from _error(item) if "error" in item else _check(item)


def _triage(answer: _Answer) -> Iterator[str]:
    yield f"state: {answer['state']}; context parallelism: {answer['context_parallel']['state']}"
    if (first := answer["first_failure"]) is not None:
        yield ", ".join(f"{name} {first[name]}" for name in ("kind", "cause", "rank", "node") if first.get(name))
        yield f"line: {str(first.get('line') or first.get('text') or '')[:300]}"
    if (advice := answer["recommendation"]) is not None:
        yield f"do: {advice['action']}: {advice['reason']}"


def _plan(answer: _Answer) -> Iterator[str]:
    yield f"{answer['legal']} legal layouts; the best, as sizes, seconds a step, GiB at the peak:"
    for item in answer["layouts"]:
        sizes = " ".join(f"{name}={value}" for name, value in item["layout"].items() if value not in (None, 1))
        time = "no time" if item.get("step_s") is None else f"{item['step_s']:.2f} s"
        peak = (item.get("memory_gib") or {}).get("peak")
        memory = "no memory" if peak is None else f"{peak:.0f} GiB"
        fits = {True: "fits", False: "does not fit"}.get(item["fits"], "cannot tell whether it fits")
        yield f"{sizes}: {time}, {memory}, {fits}"


def _support(answer: _Answer) -> Iterator[str]:
    yield f"{answer['subject']}: {len(answer['cells'])} combinations"
    yield from (f"{rule}: {title}" for rule, title in answer["rules"].items())


def _explain(answer: _Answer) -> Iterator[str]:
    for item in answer["rules"]:
        yield f"{item['rule']} ({item['severity']}): {item['title']}"
        yield str(item.get("why", ""))
    for item in answer.get("options", ()):
        yield f"{item['option']}: {len(item['start'])} checks and changes at start-up"
        yield from (f"{row['text']} ({', '.join(row['releases'][-1:])}): {row['message']}" for row in item["start"])


def _dcp(answer: _Answer) -> Iterator[str]:
    metrics = answer["metrics"]
    many = metrics["num_micro_batches"]
    yield f"{many} micro-batch{'' if many == 1 else 'es'}, {metrics['estimated_s']:.3f} s by the model's estimate"
    yield f"slowest over mean {metrics['imbalance']:.3f}"


def _rendered(answer: _Answer) -> Iterator[str]:
    yield from answer["notes"]
    yield f"the job is the {len(answer['job'])} lines of `job`"


def _error(answer: _Answer) -> Iterator[str]:
    error = answer["error"]
    parts = (error["found"], error["expected"] and f"wanted {error['expected']}", error["do"])
    yield "; ".join(part for part in parts if part)


def _unknown(answer: _Answer) -> Iterator[str]:
    yield f"an answer of the schema {answer.get('schema')}"


_BY_SCHEMA: Mapping[str, Callable[[_Answer], Iterator[str]]] = {
    "hcp.check": _check,
    "hcp.check-many": _checks,
    "hcp.triage": _triage,
    "hcp.plan": _plan,
    "hcp.support": _support,
    "hcp.explain": _explain,
    "hcp.dcp-plan": _dcp,
    "hcp.rendered": _rendered,
    "hcp.error": _error,
}
