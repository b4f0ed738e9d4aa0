"""What an evaluation writes, so that a branch which may not be taken can be taken back."""

from __future__ import annotations

from typing import Any

from megatron_hcp.validators.values import ABSENT, NotKnown, merged, same

Writes = dict[tuple[int, Any], tuple[dict[Any, Any], Any]]
"""(the dict's identity, key) -> (dict, its value at the end of a branch)."""
_Entries = list[tuple[dict[Any, Any], Any, Any]]


class Journal:
    """Writes to dicts, with the values that they had before."""

    def __init__(self) -> None:
        self._entries: _Entries | None = None

    def put(self, owner: dict[Any, Any], key: Any, value: Any) -> None:
        """Gives a key a value; `ABSENT` removes it."""
        if self._entries is not None:
            self._entries.append((owner, key, owner.get(key, ABSENT)))
        if value is ABSENT:
            owner.pop(key, None)
        else:
            owner[key] = value

    def begin(self) -> _Entries | None:
        """Starts a branch; returns what `taken_back` needs at its end."""
        outer, self._entries = self._entries, []
        return outer

    def taken_back(self, outer: _Entries | None) -> Writes:
        """What the branch wrote; all of it has its value from before again."""
        entries = self._entries or []
        writes: Writes = {(id(owner), key): (owner, owner.get(key, ABSENT)) for owner, key, _ in entries}
        for owner, key, old in reversed(entries):
            if old is ABSENT:
                owner.pop(key, None)
            else:
                owner[key] = old
        self._entries = outer
        return writes

    def join(self, test: NotKnown, one: Writes, two: Writes) -> None:
        """Writes what two branches under an unknown condition agree on; the rest is unknown."""
        for place, (owner, _) in {**one, **two}.items():
            key = place[1]
            old = owner.get(key, ABSENT)
            left, right = one.get(place, (owner, old))[1], two.get(place, (owner, old))[1]
            self.put(owner, key, left if same(left, right) else merged(test, left, right))
