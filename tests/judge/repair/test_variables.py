"""A patch changes a variable in the line that sets it, where that changes nothing else of the launch."""

from __future__ import annotations

import pytest

from megatron_hcp.rules.registry import BY_ID
from support.patches import Patched

ONLY = (BY_ID["CP001"],)
RUN = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length"


@pytest.mark.parametrize(
    ("line", "word", "wanted"),
    [
        ("SEQ=4097", "$SEQ", "SEQ=4100"),
        ('SEQ="4097"  # tokens', '"${SEQ}"', 'SEQ="4100"  # tokens'),
        ("export SEQ=4097", "$SEQ", "export SEQ=4100"),
        ("SEQ=${SEQ:-4097}", "$SEQ", "SEQ=${SEQ:-4100}"),
    ],
)
def test_a_variable_is_changed_where_it_is_set(patched: Patched, line: str, word: str, wanted: str) -> None:
    after, _ = patched(f"{line}\n{RUN} {word}\n", rules=ONLY)
    assert after == f"{wanted}\n{RUN} {word}\n"


@pytest.mark.parametrize(
    ("lines", "rest", "value"),
    [
        ("SEQ=4097\nSEQ=4097\n", "", 4100),  # set twice
        ("SEQ=4097\n", " --max-position-embeddings $SEQ", 4096),  # another setting would change as well
        ("SEQ=$((4000 + 97))\n", "", 4100),
    ],
)
def test_a_variable_that_is_more_than_this_setting_is_replaced_in_the_command(
    patched: Patched, lines: str, rest: str, value: int
) -> None:
    after, _ = patched(f"{lines}{RUN} $SEQ{rest}\n", rules=ONLY)
    assert after == f"{lines}{RUN} {value}{rest}\n"
