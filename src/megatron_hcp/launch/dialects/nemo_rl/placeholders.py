"""Which model a recipe means whose model must be made first: NeMo-RL's recipes then name instructions, or no path."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.launch.fact import Setting

_KEY = "policy.model_name"
_MEANT = {
    # docs/guides/deepseek.md: `git clone https://huggingface.co/deepseek-ai/DeepSeek-V3`.
    "docs/guides/deepseek.md": "deepseek-ai/DeepSeek-V3",
    # The recipes are named nemotron-super-omni-120ba12b; their language model has 120B parameters, of which 12B active.
    "nemotron-super-omni-hf": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
}
"""A piece of what stands in place of a model's name -> the model whose sizes it has."""


def with_models_meant(settings: Iterable[Setting]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """The settings with a model's name in place of what stands for it, and notes that say so."""
    found, notes = [], []
    for setting in settings:
        meant = _meant(setting) if setting.key == _KEY else None
        if meant is not None:
            setting = setting._replace(value=meant)
            notes.append(f"{_KEY} is a placeholder; the sizes are those of {meant}")
        found.append(setting)
    return tuple(found), tuple(notes)


def _meant(setting: Setting) -> str | None:
    return next((name for piece, name in _MEANT.items() if piece in str(setting.value)), None)
