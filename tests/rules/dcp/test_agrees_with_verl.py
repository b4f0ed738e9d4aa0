"""verl's own validations of dynamic CP, executed out of its wheels, against the verdicts of our rules."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import BY_ID

pytestmark = pytest.mark.upstream

LaunchOf = Callable[..., Launch]
ACTOR = "actor_rollout_ref.actor.megatron."
ENGINE = "verl/workers/engine/megatron/transformer_impl.py"


def _function(file: Path, name: str, **names: Any) -> Callable[..., Any]:
    """One function out of a source file, with `names` in place of what its module imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    node = next(item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == name)
    for argument in node.args.args:
        argument.annotation = None
    node.returns = None
    space: dict[str, Any] = {"math": math, **names}
    exec(compile(ast.Module([node], []), str(file), "exec"), space)
    return space[name]


def _fires(launch: Launch, *rules: str) -> bool:
    report = check_launch(launch, [BY_ID[rule] for rule in rules], fixes=False)
    assert not report.not_checked
    return bool(report.findings)


def _refuses(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        function(*args, **kwargs)
    except (ValueError, NotImplementedError, AssertionError):
        return True
    return False


def _tensor_dict_only(*_: Any, **__: Any) -> Any:
    raise AssertionError("no batch is given")


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
def test_dcp018_unsupported_features_are_those_that_verl_refuses(
    version: str, upstream: Path, launch_of: LaunchOf
) -> None:
    check = _function(
        upstream / f"verl-{version}" / ENGINE,
        "_check_dcp_unsupported_features",
        tu=types.SimpleNamespace(get_non_tensor_data=_tensor_dict_only),
    )
    seen = set()
    for packed, pad, vpp, fp8, replay, fused in itertools.product(
        (True, False), (False, 4096), (None, 1, 2), (None, "e4m3"), ("disabled", "R2"), (False, True)
    ):
        engine = types.SimpleNamespace(
            dynamic_context_parallel=True,
            use_remove_padding=packed,
            pad_to_length=pad,
            virtual_pipeline_model_parallel_size=vpp,
            router_replay=types.SimpleNamespace(mode=replay),
        )
        model = types.SimpleNamespace(model_type="language_model", hf_config=types.SimpleNamespace())
        theirs = _refuses(check, engine, model, types.SimpleNamespace(fp8=fp8, moe_router_fusion=fused))
        text = (
            f"{ACTOR}dynamic_context_parallel=True {ACTOR}max_seqlen_per_dp_cp_rank=4096 "
            f"actor_rollout_ref.model.use_remove_padding={packed} {ACTOR}pad_to_length={pad} "
            f"{ACTOR}virtual_pipeline_model_parallel_size={'null' if vpp is None else vpp} "
            f"+{ACTOR}override_transformer_config.fp8={'null' if fp8 is None else fp8} "
            f"{ACTOR}router_replay.mode={replay} +{ACTOR}override_transformer_config.moe_router_fusion={fused}"
        )
        assert _fires(launch_of("verl", text, f"verl={version}"), "DCP018") == theirs, text
        seen.add(theirs)
    assert seen == {True, False}


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
def test_dcp021_what_verl_refuses_by_the_number_of_ranks_we_refuse_at_start_up_and_more_later(
    version: str, upstream: Path, launch_of: LaunchOf
) -> None:
    check = _function(upstream / f"verl-{version}" / ENGINE, "_validate_dcp_world_size")
    for ranks in range(1, 65):
        text = f"{ACTOR}dynamic_context_parallel=True trainer.n_gpus_per_node={ranks}"
        report = check_launch(launch_of("verl", text, f"verl={version}"), [BY_ID["DCP021"]], fixes=False)
        stages = [finding.stage for finding in report.findings]
        if _refuses(check, ranks):
            assert stages == ["init"]
        else:
            assert stages == ([] if ranks & (ranks - 1) == 0 else ["training"])


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
def test_dcp005_tokens_per_rank_are_refused_where_verl_refuses_them(
    version: str, upstream: Path, launch_of: LaunchOf
) -> None:
    """verl's condition is one `if` of the config's constructor: taken out of it and evaluated."""
    file = upstream / f"verl-{version}" / "verl/workers/config/engine.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    condition = next(
        node.test
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "max_seqlen_per_dp_cp_rank" in ast.unparse(node.test)
    )
    code = compile(ast.Expression(condition), str(file), "eval")
    for tokens in (None, -1, 0, 1, 4096):
        config = types.SimpleNamespace(dynamic_context_parallel=True, max_seqlen_per_dp_cp_rank=tokens)
        theirs = bool(eval(code, {"self": config}))
        text = (
            f"{ACTOR}dynamic_context_parallel=True "
            f"{ACTOR}max_seqlen_per_dp_cp_rank={'null' if tokens is None else tokens}"
        )
        assert _fires(launch_of("verl", text, f"verl={version}"), "DCP005") == theirs


class _Lengths:
    """What the split reads of a jagged tensor: the differences of its offsets."""

    is_nested = True

    def __init__(self, lengths: Iterable[int]) -> None:
        self.lengths = list(lengths)

    def offsets(self) -> _Lengths:
        return self

    def diff(self) -> list[int]:
        return self.lengths


def test_dcp025_verl_0_8_leaves_ranks_empty_or_unsplit_for_exactly_the_counts_that_we_name(
    upstream: Path, launch_of: LaunchOf
) -> None:
    chosen: list[list[int]] = []

    def select(batch: dict[str, Any], indices: list[int]) -> dict[str, Any]:
        chosen.append(indices)
        return dict(batch)

    tensor_dicts = types.SimpleNamespace(
        index_select_tensor_dict=select, assign_non_tensor_data=lambda batch, key, value: batch.update({key: value})
    )
    split = _function(
        upstream / "verl-0.8.0" / "verl/utils/megatron_utils.py", "dynamic_cp_split_batch", tu=tensor_dicts
    )
    config = types.SimpleNamespace(max_seqlen_per_dp_cp_rank=100)
    assert "dp_rank" in inspect.signature(split).parameters
    for ranks, count in itertools.product((2, 4, 8, 16), range(1, 40)):
        hazard = False
        sizes = [2**power for power in range(ranks.bit_length()) if 2**power <= ranks]
        for size, rank in itertools.product(sizes, range(ranks)):
            chosen.clear()
            batch = {"input_ids": _Lengths([100 * size] * count)}
            got = split(batch, config, ranks, rank)
            hazard |= "local_cp_size" not in got or [] in chosen
        text = (
            f"{ACTOR}dynamic_context_parallel=True trainer.n_gpus_per_node={ranks} "
            f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={count}"
        )
        assert _fires(launch_of("verl", text, "verl=0.8.0"), "DCP025") == hazard, (ranks, count)


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1"])
def test_dcp018_the_only_distillation_with_top_k_logits_is_the_one_that_we_name(version: str, upstream: Path) -> None:
    file = upstream / f"verl-{version}" / "verl/trainer/distillation/losses.py"
    settings = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DistillationLossSettings"
    ]
    named = {
        name
        for node in settings
        for keyword in node.keywords
        if keyword.arg == "names"
        for name in ast.literal_eval(keyword.value)
        if any(other.arg == "use_topk" and ast.literal_eval(other.value) for other in node.keywords)
    }
    assert len(settings) >= 2
    assert named == {"forward_kl_topk"}
