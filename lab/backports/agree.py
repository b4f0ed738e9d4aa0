"""Do the table of `hcp backports` and the rows of known faults say the same of the fixes that both know?

`python lab backports/agree` prints each pair whose releases differ, and counts. The rows were read release by
release by people; the table is counted from upstream's histories. A fix that the table calls made where the row calls
it lacking, or the other way round, is an error of one of them: read upstream.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from packaging.version import Version
from program import parser_of

from megatron_hcp.backports.table import Backport, fixes_of, upstreams
from megatron_hcp.rules.known.row import KNOWN, Known, spans_of
from megatron_hcp.rules.registry import RULES


def pairs() -> Iterator[tuple[Known, Backport, str]]:
    """Each row, with each fix of its package that it cites, and the oldest release that the table knows."""
    for row in (KNOWN[rule.id] for rule in RULES if rule.id in KNOWN):
        upstream = upstreams().get(row.package)
        numbers = set(re.findall(r"#(\d+)", row.issue))
        if upstream is not None:
            yield from ((row, fix, upstream.oldest) for fix in fixes_of(upstream) if fix.number in numbers)


def main() -> None:
    parser_of(__doc__).parse_args()
    ends, starts = Counter[str](), Counter[str]()
    for row, fix, oldest in pairs():
        said, counted = spans_of(row.versions)[-1], fix.spans[-1]
        end = _compared(said.mended or "999", counted.mended or "999")
        start = _compared(_later(said.since or "0", oldest), counted.since or "0")
        ends[end] += 1
        starts[start] += 1
        if end != "same" or start == "earlier":
            print(f"{row.id} #{fix.number}: row {row.versions}, table >={counted.since},<{counted.mended}")
    print(f"{ends.total()} pairs; the release with the fix: {_counted(ends)}; the first one: {_counted(starts)}")


def _later(one: str, other: str) -> str:
    return max(one, other, key=Version)


def _compared(said: str, counted: str) -> str:
    """Whether the table's release is the row's, or an earlier or a later one."""
    first, second = Version(said), Version(counted)
    return "same" if first == second else "earlier" if second < first else "later"


def _counted(places: Counter[str]) -> str:
    return ", ".join(f"{places[name]} {name}" for name in ("same", "earlier", "later"))


if __name__ == "__main__":
    main()
