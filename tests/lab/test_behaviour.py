"""lab/behaviour.py: a record keeps a digest of each answer, and tells which call it belongs to."""

from __future__ import annotations

from behaviour import RECORD, Answer, digests, read, written

ANSWERS: dict[str, Answer] = {
    "examples/a b.sh text": (0, "ok\n", ""),
    "examples/a b.sh json": (1, "{}", "one line\n"),
    "HCP002 explain": (0, "why", ""),
}


def test_a_record_gives_back_the_digest_of_each_call() -> None:
    text = written(digests(ANSWERS), "0123abcd")
    assert text.count("\n") == 3 and "0123abcd" in text.splitlines()[0]
    assert read(text) == digests(ANSWERS)


def test_the_exit_code_the_output_and_the_errors_each_change_the_digest() -> None:
    answers: list[Answer] = [(0, "a", "b"), (1, "a", "b"), (0, "ab", "b"), (0, "a", ""), (None, "a", "b")]
    assert len({digests({"call": answer})["call"] for answer in answers}) == len(answers)


def test_the_record_holds_every_mode_of_each_example() -> None:
    modes: dict[str, set[str]] = {}
    for name in read(RECORD.read_text(encoding="utf-8")):
        subject, _, mode = name.rpartition(" ")
        modes.setdefault(subject, set()).add(mode)
    assert len(modes) > 900
    assert {frozenset(each) for each in modes.values()} == {frozenset({"text", "json", "show"}), frozenset({"explain"})}
