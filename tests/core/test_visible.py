"""Text from outside cannot act on what prints it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcp.core.visible import visible, without_secrets


@given(st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Lu", "Nd", "Po"))))
def test_nothing_but_printable_characters_comes_out(text: str) -> None:
    assert {unicodedata.category(letter) for letter in visible(text)}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_what_a_person_writes_stays(text: str) -> None:
    assert visible(text) == text


def test_every_kind_of_escape_is_written_out() -> None:
    assert visible("a\nb\tc\x1b[2J\x9b\u202e\U000e0001\udc80") == r"a\nb\tc\x1b[2J\x9b\u202e\U000e0001\udc80"


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=S",
        "export HF_TOKEN='S S'; run",
        'WANDB_API_KEY="S"',
        "env.AWS_SECRET_ACCESS_KEY=S,PATH=/bin",
        "'HF_TOKEN=S S' tp=2",
        '{"NGC_API_KEY": "S", "tp": 2}',
        "{'password': 'S'}",
        "DB_PASSWORD: S",
        "PGPASSWORD=S",
        "--hf-token S --seq-length 4",
        "--wandb-api-key=S",
        "logger.wandb_api_key=S",
        "MY_CREDENTIALS=S",
        "https://me:S@host/x?y=1",
        "git clone https://S@host:80/x",
        "a://b a://u:S@c b://S@d",
        "X_KEY=" + "S" * 9,
        'HF_TOKEN="S',
        "HF_TOKEN=\\nS",
    ],
)
def test_a_secret_is_not_printed(text: str) -> None:
    assert "S" in text.replace("AWS_SECRET", "").replace("ACCESS", "").replace("PASS", "")
    shown = without_secrets(text)
    for word in ("AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWORD", "CREDENTIALS"):
        shown = shown.replace(word, "")
    assert "S" not in shown and "***" in shown, shown


@pytest.mark.parametrize(
    "text",
    [
        "model.linear_num_key_heads=16",
        "data.prompt_key=prompt",
        "calculate_per_token_loss=True",
        "loss_per_token=x",
        "tokens_per_rank=1024",
        "pad_token=<pad>",
        "MAX_TOKEN=4096",
        "found HF_TOKEN",
        "--use-token --seq-length 4",
        "https://host/x@y",
        "--tokenizer-type NullTokenizer",
        "sort_key=name",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@given(st.text(st.sampled_from("aKEY_TOKEN=: '\"-/@\\n")))
def test_a_text_without_secrets_has_none_left_to_hide(text: str) -> None:
    once = without_secrets(text)
    assert without_secrets(once) == once


def test_hiding_secrets_takes_time_in_proportion_to_the_text() -> None:
    """Quadratic work on these would take hours."""
    for text in ("KEY", "A_KEY=", 'A_KEY="', "a://", "a://@", "--token ", "token ", "a_key\t", "'A_KEY'"):
        assert len(without_secrets(text * 200_000)) > 0
    assert without_secrets("a_key" + " " * 1_000_000 + "=") != ""
