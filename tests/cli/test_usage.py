"""Words that click refuses get one line in the form of all others: what was found, and what was wanted."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("chek", "found the command 'chek'; wanted check"),
        ("dcp wieghts", "found the command 'wieghts'; wanted weights"),
        ("dcp foo", "found the command 'foo'; wanted one of calibrate, plan, show, weights"),
        ("plan --gpus 0", "--gpus: found '0'; wanted a whole number of at least 1"),
        ("plan --seq-length 256k", "--seq-length: found '256k'; wanted a whole number of at least 1"),
        ("verify --jobs 100", "--jobs: found '100'; wanted a whole number from 1 to 64"),
        ("groups --world-size x", "--world-size: found 'x'; wanted a whole number"),
        ("check --format yaml", "--format: found 'yaml'; wanted one of text, json, sarif, github"),
        ("completion nosh", "shell: found 'nosh'; wanted one of bash, zsh, fish"),
    ],
)
def test_a_refused_word_is_quoted_beside_what_was_wanted(hcp, words: str, said: str) -> None:
    done = hcp(*words.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"hcp: {said}\n")


def test_a_refused_word_cannot_write_to_the_terminal(hcp) -> None:
    done = hcp("plan", "--gpus", "\x1b]0;title\a")
    assert done.returncode == 2 and "\x1b" not in done.stderr and "wanted a whole number of at least 1" in done.stderr
