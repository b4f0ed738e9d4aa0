"""Files that a script sources and that nobody read: what they may set, and how they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sourced import TRAIN, read, tp


@pytest.mark.parametrize(
    "arms",
    [
        'if [ "${KIND:-a}" = b ]; then TP=2; else source other.sh; fi',
        'TP=1\nif [ "${KIND:-a}" = b ]; then TP=2; else source other.sh; fi',
        'case a in b) TP=2;; *) V=1 source "$(program)/other.sh";; esac',
    ],
)
def test_an_unread_file_of_one_arm_may_set_what_the_other_arms_set(tmp_path: Path, arms: str) -> None:
    reading = read(tmp_path, f"{arms}\n{TRAIN}")
    assert tp(reading) is None
    assert "TP may be set by other.sh" in reading.unknown["tensor_model_parallel_size"]


def test_what_an_arm_sets_after_an_unread_file_is_known(tmp_path: Path) -> None:
    assert tp(read(tmp_path, f"if [ a = b ]; then TP=2; else source other.sh; TP=4; fi\n{TRAIN}")) == "4"


@pytest.mark.parametrize(
    ("path", "shown"), [("/models/$MODEL.sh", "another file"), ("$DIR/qwen3.sh", "qwen3.sh"), ("$FILE", "another file")]
)
def test_an_unread_file_is_shown_by_its_name_if_that_is_known(tmp_path: Path, path: str, shown: str) -> None:
    reading = read(tmp_path, f'source "{path}"\n{TRAIN}')
    assert reading.unknown["tensor_model_parallel_size"] == f"TP may be set by {shown}, which line 1 sources"
