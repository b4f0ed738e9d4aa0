"""Our verdict against single functions of the installed megatron-core: environment, windows, Mamba's heads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.cp.view import windowed_types
from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.rules.view import View

pytestmark = pytest.mark.torch

LaunchOf = Callable[..., Launch]


def findings(launch: Launch, rule_id: str) -> list[str]:
    report = check_launch(launch, (BY_ID[rule_id],), fixes=False)
    assert not report.not_checked, report.not_checked
    return [item.severity for item in report.findings]


def test_the_attention_variables_are_judged_as_the_language_model_asserts_them(
    launch_of: LaunchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    from megatron.core.models.common.language_module.language_module import LanguageModule
    from megatron.core.transformer.enums import AttnBackend

    names = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
    for backend, values in itertools.product(AttnBackend, itertools.product((None, "0", "1"), repeat=3)):
        with monkeypatch.context() as patched:
            for name, value in zip(names, values):
                if value is None:
                    patched.delenv(name, raising=False)
                else:
                    patched.setenv(name, value)
            kept = dict(os.environ)
            try:
                config = SimpleNamespace(attention_backend=backend)
                LanguageModule._set_attention_backend(SimpleNamespace(config=config))
                rejected = False
            except AssertionError:
                rejected = True
            finally:
                os.environ.clear()
                os.environ.update(kept)
        stated = " ".join(f"env.{name}={value}" for name, value in zip(names, values) if value is not None)
        launch = launch_of("mlm", f"--attention-backend {backend.name}", stated)
        assert bool(findings(launch, "ENV002")) == rejected, f"{backend.name} with {stated or 'nothing'}"


@pytest.mark.parametrize("skip", [None, 1, 2, 3, 4, [1, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]])
def test_the_layers_with_a_window_are_those_of_megatron_core(skip: Any, launch_of: LaunchOf) -> None:
    from megatron.core.transformer.utils import is_layer_window_attention

    kinds = ["p2p", "a2a", "all_gather", "a2a+p2p"]
    expected = [kind for layer, kind in enumerate(kinds, 1) if is_layer_window_attention((8, 0), skip, layer)]
    written = "null" if skip is None else str(skip).replace(" ", "")
    launch = launch_of(
        "bridge",
        f"model.context_parallel_size=2 model.num_layers=4 model.cp_comm_type=[{','.join(kinds)}] "
        f"model.window_size=[8,0] model.window_attn_skip_freq={written}",
    )
    assert list(windowed_types(View(launch))) == expected
    assert bool(findings(launch, "CP009")) == ("p2p" in expected)


def test_mamba_heads_and_groups_are_judged_as_its_context_parallel_part_asserts(launch_of: LaunchOf) -> None:
    from megatron.core.ssm.mamba_context_parallel import MambaContextParallel

    verdicts = {True: 0, False: 0}
    for heads, groups, tp, cp in itertools.product((8, 12, 16, 48), (1, 2, 4, 6, 8), (1, 2), (2, 3, 4, 6, 8)):
        if heads % tp or groups % tp or heads % groups:
            continue  # refused by the mixer, with any number of CP ranks
        group = SimpleNamespace(size=lambda cp=cp: cp, rank=lambda: 0)
        try:
            MambaContextParallel(group, 64 * heads // tp, heads // tp, groups // tp, 16, None, None, None, None, False)
            rejected = False
        except AssertionError:
            rejected = True
        launch = launch_of(
            "mlm",
            f"--hybrid-layer-pattern M* --mamba-num-heads {heads} --mamba-num-groups {groups} "
            f"--tensor-model-parallel-size {tp} --context-parallel-size {cp}",
        )
        assert bool(findings(launch, "MODEL001")) == rejected, f"{heads} heads, {groups} groups, tp {tp}, cp {cp}"
        verdicts[rejected] += 1
    assert min(verdicts.values()) >= 20, verdicts
