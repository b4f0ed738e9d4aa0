"""Matches the patterns of scripts (`case`, `[[ == ]]`, `${x%…}`, `[[ =~ ]]`) in time linear in the text.

Python's `re` backtracks, so an untrusted pattern can keep it busy forever. Here a pattern is a set of positions, of
which several are active at once (Glushkov's automaton). Each character of a text is examined once, and the work is
counted: a pattern that costs too much raises `Undecidable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from megatron_hcp.bash.arith import Undecidable

MAX_COST = 300_000
STEP_COST = 50
"""How much work counts as one step of following a script."""
_MAX_POSITIONS = 500
START, END = "start", "end"
"""What `^` and `$` match, before the first character and after the last; each may match there repeatedly."""

Takes = Callable[[str], bool]
"""Whether a position takes a character."""


class Chain:
    """Nodes in sequence."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes


class Choice:
    """One of several nodes."""

    def __init__(self, ways: Sequence[Node]) -> None:
        self.ways = ways


class Star:
    """A node repeated any number of times."""

    def __init__(self, node: Node) -> None:
        self.node = node


Node = Takes | Chain | Choice | Star


class Pattern:
    """A compiled pattern. `cost` counts the work done so far, in steps of about 0.3 µs.

    Raises:
        Undecidable: it is too long, or matching takes too many steps.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.cost = 0
        self._takes: list[Takes] = []
        self._follow: list[int] = []
        self._takers: dict[str, int] = {}
        self._may_be_empty, self._first, self._last = self._built(Chain(nodes))
        after_end = [self._follow[position] for position in self._each(self._takers_of(END))]
        if any(follow & self._takers_of(START) for follow in after_end):
            raise Undecidable("a regular expression has ^ after $")

    def ends(self, text: Sequence[str], start: int = 0, anywhere: bool = False) -> Iterator[int]:
        """Where a match that begins at `start` may end, in order; with `anywhere` it may also begin later."""
        if self._may_be_empty:
            yield start
        live = self._first
        for place in range(start, len(text)):
            hit = live & self._takers_of(text[place])
            if hit & self._last:
                yield place + 1
            live = self._first if anywhere else 0
            for position in self._each(hit):
                live |= self._follow[position]
            if not live:
                return

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return any(end == len(text) for end in self.ends(text))

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches somewhere in the text, as a regular expression does."""
        starts, ends = (self._takers_of(edge).bit_count() for edge in (START, END))
        return any(True for _ in self.ends([START] * starts + [*text] + [END] * ends, anywhere=True))

    def _takers_of(self, symbol: str) -> int:
        """The positions that take a character, as bits."""
        self._pay()
        takers = self._takers.get(symbol)
        if takers is None:
            self._pay(len(self._takes))
            takers = sum(1 << position for position, takes in enumerate(self._takes) if takes(symbol))
            self._takers[symbol] = takers
        return takers

    def _pay(self, steps: int = 1) -> None:
        self.cost += steps
        if self.cost > MAX_COST:
            raise Undecidable("a pattern takes too long to try")

    def _each(self, positions: int) -> Iterator[int]:
        while positions:
            lowest = positions & -positions
            positions ^= lowest
            self._pay()
            yield lowest.bit_length() - 1

    def _built(self, node: Node) -> tuple[bool, int, int]:
        """Adds a node's positions. Returns whether it may be empty, and where it may begin and end, as bits."""
        self._pay()
        if isinstance(node, Chain):
            return self._chained(node.nodes)
        if isinstance(node, Choice):
            may_be_empty, first, last = False, 0, 0
            for way in node.ways:
                empty, begins, ends = self._built(way)
                may_be_empty, first, last = may_be_empty or empty, first | begins, last | ends
            return may_be_empty, first, last
        if isinstance(node, Star):
            _, first, last = self._built(node.node)
            self._join(last, first)
            return True, first, last
        if len(self._takes) == _MAX_POSITIONS:
            raise Undecidable("a pattern is too long to try")
        self._takes.append(node)
        self._follow.append(0)
        position = 1 << (len(self._takes) - 1)
        return False, position, position

    def _chained(self, nodes: Sequence[Node]) -> tuple[bool, int, int]:
        may_be_empty, first, last = True, 0, 0
        for node in nodes:
            empty, begins, ends = self._built(node)
            self._join(last, begins)
            first |= begins if may_be_empty else 0
            last = ends | (last if empty else 0)
            may_be_empty = may_be_empty and empty
        return may_be_empty, first, last

    def _join(self, before: int, after: int) -> None:
        for position in self._each(before):
            self._follow[position] |= after
