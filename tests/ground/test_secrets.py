"""Credentials are told by their names, and no text shows them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.ground.secrets import is_secret_name, without_secrets
from support.rows import rows

SECRETS = [
    "HF_TOKEN",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID_SECRET",
    "DB_PASSWORD",
    "MY_PASSWORD_2",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GITHUB_TOKEN2",
    "APIKEY",
    "--token",
    "--wandb-key",
    "wandb_key",
    "hf-token",
    "trainer.api_key",
    "env_vars.MODEL_TOKEN",
    "API_KEY",
    "ID_TOKEN",
    "+ray_kwargs.ray_init.runtime_env.env_vars.X_TOKEN",
]
OTHERS = [
    "KEY002",
    "KEY",
    "token",
    "a.key",
    "data.prompt_key",
    "full_key",
    "data.image_key",
    "distillation.teacher_key",
    "--disable-vision-class-token",
    "--eos-token",
    "--tokenizer-model",
    "TOKENIZER_MODEL",
    "TOKENIZERS_PARALLELISM",
    "calculate_per_token_loss",
    "num_tokens",
    "MAX_NEW_TOKENS",
    "linear_num_key_heads",
    "model.token.dispatcher",
    "PWD",
    "reward_fn_key",
    "--eod-token",
    "PROMPT_KEY",
    "SORT_KEY",
    "PRIMARY_KEY",
    "DEFAULT_IMAGE_TOKEN",
    "botocore.exceptions.NoCredentialsError",
    "PasswordNotFound",
]


@pytest.mark.parametrize("name", SECRETS)
def test_names_of_credentials_are_told(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_training_are_none(name: str) -> None:
    assert not is_secret_name(name)


@rows(
    "text, shown",
    [
        ("export HF_TOKEN=hunter2", "export HF_TOKEN=***"),
        ("export HF_TOKEN='hunter 2' A=1", "export HF_TOKEN='***' A=1"),
        ('A_KEY="a\\"b" x', 'A_KEY="***" x'),
        ("A_KEY=a'b c'd", "A_KEY=*** c'd"),
        ("--token hunter2", "--token ***"),
        ("wanted KEY=VALUE; bytes per token: 4", "wanted KEY=VALUE; bytes per token: 4"),
        ("examples/hf_to_megatron_generate_text.py", "examples/hf_to_megatron_generate_text.py"),
        ("login hf_abcdefghijklmnopqrstuv", "login ***"),
        ("--wandb-key hunter2 --bf16", "--wandb-key *** --bf16"),
        ("--wandb-key=hunter2", "--wandb-key=***"),
        ("--hf-token --bf16", "--hf-token --bf16"),
        ("--export=ALL,A=1,X_KEY=hun,ter2,B=2", "--export=ALL,A=1,X_KEY=***,B=2"),
        ("  WANDB_API_KEY: hunter2", "  WANDB_API_KEY: ***"),
        ("{'X_TOKEN': 'hunter2', 'a': 1}", "{'X_TOKEN': '***', 'a': 1}"),
        ('{\\"X_TOKEN\\": \\"hunter2\\"}', '{\\"X_TOKEN\\": \\"***\\"}'),
        ("os.environ['X_TOKEN'] = 'hunter2'", "os.environ['X_TOKEN'] = '***'"),
        ("X_TOKEN=$HF_TOKEN", "X_TOKEN=$HF_TOKEN"),
        ('X_TOKEN="${HF_TOKEN}"', 'X_TOKEN="${HF_TOKEN}"'),
        ("HF_TOKEN+=hunter2", "HF_TOKEN+=***"),
        ("[[ $HF_TOKEN == x ]]", "[[ $HF_TOKEN == x ]]"),
        ("https://me:hunter2@host/x", "https://***@host/x"),
        ("https://me:hun@ter2@host/x", "https://***@host/x"),
        ("https://hunter2@host", "https://***@host"),
        ("ssh://git@host/x mail@host", "ssh://git@host/x mail@host"),
        ('url="http://rulin@host:38649/x"', 'url="http://rulin@host:38649/x"'),
        ("http://rulin@hun@ter2@host/x", "http://***@host/x"),
        ("https://aBcDeFgHiJkL@host/x", "https://***@host/x"),
        ("http://host/?api_key=hunter2&a=1", "http://host/?api_key=***&a=1"),
        ("no key is here", "no key is here"),
        ("data.prompt_key=prompt", "data.prompt_key=prompt"),
    ],
)
def test_only_the_values_are_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


VALUES = st.text(alphabet="abcdefXYZ0123456789_-+/.~^", min_size=1, max_size=30).map("hunter2".__add__)
FORMS = [
    "{n}={v}",
    "export {n}='{v}'",
    '{n}="{v}" run',
    "{n}: {v}",
    '"{n}": "{v}"',
    "ALL,{n}={v}",
    "--env {n}={v}",
    "-e {n}={v} x",
    "+a.env_vars.{n}={v}",
    "https://x:{v}@host",
    "[{n}={v}]",
]


@given(VALUES, st.sampled_from(["HF_TOKEN", "A_KEY", "x_password", "SECRET"]), st.sampled_from(FORMS))
def test_no_value_is_left_in_any_form(value: str, name: str, form: str) -> None:
    text = form.format(n=name, v=value.replace("/", "-") if "://" in form else value)
    for written in (text, json.dumps(text), repr(text), f"line 1: {text}; wanted"):
        assert "hunter2" not in without_secrets(written)


@given(st.text(alphabet="_KEY=:'\"\\ ,ab@/$-\n"))
def test_any_text_is_hidden_once(text: str) -> None:
    once = without_secrets(text)
    assert without_secrets(once) == once
