"""What `printf -v`, `"${A[*]}"` and `sed` make of known words; bash itself says what is right."""

from __future__ import annotations

import subprocess

import pytest

from megatron_hcp.bash.value import Field
from support.shell import followed

SCRIPTS = [
    'A=(0 1 1); printf -v F "[%s]" "$(IFS=\', \'; echo "${A[*]}")"',
    'A=(0 1 1); IFS=; F="${A[*]}"',
    'A=(a b); F="${A[*]}"',
    "printf -v F %d-%s 3 x",
    "F=$(echo a/b/a.yaml | sed 's#a#c/d#')",
    "F=$(echo a/b/a.yaml | sed 's/x/y/')",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_value_is_the_one_that_bash_gives(script: str) -> None:
    bash = subprocess.run(["bash", "-c", f'{script}; printf %s "$F"'], capture_output=True, text=True, check=True)
    (items,) = followed(f'{script}; run "$F"')[1]
    assert [item.text for item in items if isinstance(item, Field)] == ["run", bash.stdout]


@pytest.mark.parametrize(
    "script",
    [
        'printf -v F "%5s" x',
        'printf -v F "%s%s" x',
        'printf -v F "%s\\n" x',
        "F=$(echo a.b | sed 's/a./c/')",
        "F=$(echo aa | sed 's/a/c/g')",
        "F=$(echo a | sed 's/a/&&/')",
    ],
)
def test_what_is_not_understood_stays_unknown(script: str) -> None:
    (items,) = followed(f'{script}; run "$F"')[1]
    assert [item.text for item in items if isinstance(item, Field)] == ["run", None]


def test_a_path_of_the_scripts_own_folder_is_followed_through_sed() -> None:
    script = 'H=$(cd "$(dirname "$0")" && pwd); F=$(echo $H/x.yaml | sed "s#tests/suites#configs#"); run "$F"'
    (items,) = followed(script, name="/repo/tests/suites/llm/x.sh")[1]
    assert isinstance(items[1], Field)
    (part,) = items[1].parts
    assert part.below == "../../../configs/llm/x.yaml"  # type: ignore[union-attr]
