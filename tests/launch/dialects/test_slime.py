"""slime's own options are read; those of the phases that it runs besides training are facts of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.readers.target import read_text

# slime/utils/arguments.py: "The maximum number of tokens per GPU for calculating log probs."
COMMAND = "python train.py --actor-num-nodes 1 --max-tokens-per-gpu 9216 --log-probs-max-tokens-per-gpu 12288"


def test_log_probabilities_have_a_token_budget_of_their_own() -> None:
    facts = build_launch(read_text(f"#!/bin/bash\n{COMMAND}\n", "x.sh")).facts
    assert facts["max_tokens_per_gpu"].value == 9216
    assert facts["log_probs_max_tokens_per_gpu"].value == 12288


def test_a_step_s_batch_is_what_a_rollout_s_answers_give_over_its_steps() -> None:
    """slime_validate_args: rollout_batch_size * n_samples_per_prompt // num_steps_per_rollout."""
    rollout = f"{COMMAND} --rollout-batch-size 128 --n-samples-per-prompt 8"

    def batch(words: str) -> object:
        return build_launch(read_text(f"#!/bin/bash\n{words}\n", "x.sh")).facts["global_batch_size"].value

    assert batch(f"{rollout} --num-steps-per-rollout 4") == 256
    assert batch(f"{rollout} --num-steps-per-rollout 4 --global-batch-size 64") == 64
    assert batch(f"{rollout} --num-steps-per-rollout 4096") != 0


MODELS = {
    "small": "def model_args() -> str:\n    return '--num-layers 8 ' '--num-attention-heads 8 '\n",
    "cut": "from model_args_utils import load_sibling_model_args\n\n\ndef model_args() -> str:\n"
    "    return load_sibling_model_args(__file__, 'full', layers=4)\n",
    "full": "import os\n\nfrom model_args_utils import moe_layer_freq\n\nDENSE = 1\nHEADS = 4 * 2\n\n\n"
    "def model_args(layers: int | None = None) -> str:\n"
    "    layers = layers if layers is not None else int(os.environ.get('MODEL_ARGS_NUM_LAYERS') or 6)\n"
    "    return (\n        f'--num-layers {layers} '\n        f'--num-attention-heads {HEADS} '\n"
    "        f'--moe-layer-freq {moe_layer_freq(nlayers=layers, first_k_dense_replace=DENSE)} '\n    )\n",
    "odd": "import os\n\n\ndef model_args() -> str:\n"
    "    return f'--num-layers {len(os.listdir())} --num-attention-heads 8'\n",
    "branches": "LAYERS = 8\nif LAYERS:\n    LAYERS = 9\n\n\ndef model_args() -> str:\n"
    "    return f'--num-layers {LAYERS} --num-attention-heads 8'\n",
    "huge": "A = 99999\nB = A * A * A\n\n\ndef model_args() -> str:\n    return f'--num-layers {B}'\n",
    "long": "A = '0123456789'\n"
    + "A = f'{A}{A}'\n" * 40
    + "\n\ndef model_args() -> str:\n    return f'--num-layers {A}'\n",
    "wrong": "from x import load_sibling_model_args\n\n\ndef model_args() -> str:\n"
    "    return load_sibling_model_args()\n",
    "loop": "from x import load_sibling_model_args\n\n\ndef model_args() -> str:\n"
    "    return load_sibling_model_args(__file__, 'loop')\n",
}
"""What files in miles' scripts/models do: the first three as there, the others as none does."""


@pytest.mark.parametrize(
    ("before", "model", "layers", "heads", "unknown"),
    [
        ("", "small", 8, 8, ()),
        ("", "full", 6, 8, ()),
        ("export MODEL_ARGS_NUM_LAYERS=12\n", "full", 12, 8, ()),
        ("MODEL_ARGS_NUM_LAYERS=12\n", "full", 6, 8, ()),
        ("MODEL_ARGS_NUM_LAYERS=10 ", "full", 10, 8, ()),
        ("export MODEL_ARGS_NUM_LAYERS=$(nproc)\n", "full", None, None, ("num_layers", "heads")),
        ("", "cut", 4, 8, ()),
        ("", "odd", None, None, ("num_layers", "heads")),
        ("", "branches", None, None, ("num_layers", "heads")),
        ("", "huge", None, None, ("num_layers", "heads")),
        ("", "long", None, None, ("num_layers", "heads")),
        ("", "wrong", None, None, ("num_layers", "heads")),
        ("", "loop", None, None, ("num_layers", "heads")),
        ("", "absent", None, None, ("num_layers", "heads")),
        ("", "$1", None, None, ("num_layers", "heads")),
    ],
)
def test_a_model_s_options_that_miles_puts_together_in_python_are_read(
    tmp_path: Path, before: str, model: str, layers: int | None, heads: int | None, unknown: tuple[str, ...]
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts" / "models").mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    for name, text in MODELS.items():
        (tmp_path / "scripts" / "models" / f"{name}.py").write_text(text)
    lines, prefix = (before, "") if before.endswith("\n") else ("", before)
    script = tmp_path / "examples" / "run.sh"
    script.write_text(
        f'#!/bin/bash\n{lines}HERE="$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" &>/dev/null && pwd)"\n'
        f'LINE="$({prefix}python3 "${{HERE}}/../miles/utils/external_utils/model_args_utils.py" "{model}")" || exit 1\n'
        f'read -ra MODEL_ARGS <<< "${{LINE}}"\n{COMMAND} ${{MODEL_ARGS[@]}}\n'
    )
    launch = load_launch(str(script), LoadOptions())
    assert {"num_layers": launch.facts.get("num_layers"), "heads": launch.facts.get("heads")} == {
        "num_layers": None if layers is None else launch.facts["num_layers"]._replace(value=layers),
        "heads": None if heads is None else launch.facts["heads"]._replace(value=heads),
    }
    assert set(unknown) <= launch.unknown.keys()
