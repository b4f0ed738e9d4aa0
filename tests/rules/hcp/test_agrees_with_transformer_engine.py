"""Our verdict on hierarchical CP against Transformer Engine's own functions, taken out of each unpacked release.

`attn_forward_func_with_cp` is the gate that every context-parallel attention passes; it runs here without torch, its
neighbours replaced by stand-ins that do nothing. Before 2.8 two of its checks stood in the function behind it.
"""

from __future__ import annotations
import __future__

import ast
import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import BY_ID, RULES

pytestmark = pytest.mark.upstream

LaunchOf = Callable[..., Launch]
_OURS = tuple(rule for rule in RULES if rule.id.startswith("HCP"))
GATE = "attn_forward_func_with_cp"
_CP = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
_OLD = "transformer_engine/pytorch/attention.py"  # before 2.3


class _Group:
    def __init__(self, size: int = 2) -> None:
        self.size = size


class _Anything:
    """Stands for arguments that the gate hands on without a look, and for functions whose result it ignores."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, index: Any) -> int:
        return 8  # every head has the same channels: no MLA


def releases(upstream: Path) -> list[tuple[str, Path]]:
    found = sorted(upstream.glob("transformer-engine-*"))
    assert len(found) >= 8, f"too few releases of transformer-engine in {upstream} to judge version gates"
    files = [(folder.name.rpartition("-")[2], folder) for folder in found]
    return [(version, folder / (_CP if (folder / _CP).is_file() else _OLD)) for version, folder in files]


@cache
def parts(path: Path) -> tuple[ast.FunctionDef, ast.If]:
    """The gate, and the branch for several groups at the start of the ring attention behind it."""
    tree = ast.parse(path.read_text())
    gate = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == GATE)
    ring = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AttnFuncWithCPAndKVP2P")
    branches = (node for node in ast.walk(ring) if isinstance(node, ast.If))
    branch = next(node for node in branches if "isinstance(cp_group, list)" in ast.unparse(node.test))
    return gate, branch


def compiled(nodes: list[ast.stmt]) -> CodeType:
    flags = __future__.annotations.compiler_flag
    return compile(ast.Module(nodes, []), "<transformer-engine>", "exec", flags=flags, dont_inherit=True)


def upstream_verdict(path: Path, case: dict[str, Any]) -> str | None:
    """What the release says against the attention call; None if it goes on to the communication itself."""
    gate, branch = parts(path)
    anything = _Anything()

    def ring(*args: Any) -> None:
        names = {"cp_group": case["groups"], "qkv_format": case["format"], "attn_bias_type": case["bias"]}
        exec(compiled([branch]), {**namespace, **names})

    strategy: Any = type("Strategy", (), {"NO_LOAD_BALANCE": object()})
    strategy.DUAL_CHUNK_SWAP = strategy()
    namespace: dict[str, Any] = {
        "get_distributed_world_size": lambda group: group.size,
        "get_distributed_rank": lambda group: 0,
        "dist_group_type": _Group,
        "get_cudnn_version": lambda: (9, 21, 0),
        "is_graph_capturing": lambda: False,
        "CPLoadBalancingStrategy": strategy,
        "torch": anything,
        "AttnFuncWithCPAndKVP2P": SimpleNamespace(apply=ring),
        "AttnFuncWithCPAndKVAllGather": SimpleNamespace(apply=anything),
        "AttnFuncWithCPAndQKVOA2A": SimpleNamespace(apply=anything),
        "nvtx_range_push": anything,
        "nvtx_range_pop": anything,
    }
    exec(compiled([gate]), namespace)
    given = {
        "cp_group": case["groups"],
        "cp_comm_type": "a2a+p2p",
        "qkv_format": case["format"],
        "attn_mask_type": "padding_causal" if case["format"] == "thd" else "causal",
        "attn_bias_type": case["bias"],
        "attn_bias": None if case["bias"] == "no_bias" else anything,
        "use_fused_attention": True,
        "window_size": case["window"],
        "softmax_type": case["softmax"],
        "fp8": False,
        "load_balancing_strategy": strategy.DUAL_CHUNK_SWAP,
        "pad_between_seqs": False,
        "deterministic": False,
    }
    names = [argument.arg for argument in gate.args.args]
    try:
        namespace[GATE](**{name: given.get(name, anything) for name in names})
    except AssertionError as error:
        return str(error) or "AssertionError"
    return None


def our_verdict(launch_of: LaunchOf, version: str, case: dict[str, Any]) -> list[str]:
    sizes = [group.size for group in case["groups"]]
    cp = 1
    for size in sizes:
        cp *= size
    text = (
        f"model.context_parallel_size={cp} model.cp_comm_type=a2a+p2p model.window_attn_skip_freq=null "
        f"model.hierarchical_context_parallel_sizes={sizes} model.window_size={list(case['window'])} "
        f"model.softmax_type={case['softmax']}"
    ).replace(", ", ",")
    packed = "true" if case["format"] == "thd" else "false"
    biased = "true" if case["bias"] != "no_bias" else "false"
    launch = launch_of("bridge", text, f"te={version} thd={packed} attention_bias={biased}")
    findings = check_launch(launch, _OURS, fixes=False, verdict=False).findings
    return [item.rule.id for item in findings if item.severity == "error"]


def test_hcp003_hcp014_to_hcp018_every_release_agrees_on_levels_formats_biases_windows_and_sinks(
    upstream: Path, launch_of: LaunchOf
) -> None:
    verdicts = {"accepted": 0, "rejected": 0}
    for version, path in releases(upstream):
        knows_sinks = "softmax_type" in {argument.arg for argument in parts(path)[0].args.args}
        for groups, fmt, bias, window, softmax in itertools.product(
            ([2, 2], [4, 2], [4], [2, 2, 2]),
            ("bshd", "thd"),
            ("no_bias", "post_scale_bias"),
            ((-1, 0), (128, 0)),
            ("vanilla", "learnable") if knows_sinks else ("vanilla",),
        ):
            if fmt == "thd" and bias != "no_bias":
                continue  # a bias with packed data is refused for every type: CP011
            case = {
                "groups": [_Group(size) for size in groups],
                "format": fmt,
                "bias": bias,
                "window": window,
                "softmax": softmax,
            }
            theirs, ours = upstream_verdict(path, case), our_verdict(launch_of, version, case)
            verdicts["accepted" if theirs is None else "rejected"] += 1
            assert (theirs is None) == (not ours), (
                f"Transformer Engine {version} {'accepts' if theirs is None else 'rejects: ' + theirs}; our errors: "
                f"{ours or 'none'}; sizes {groups}, {fmt}, {bias}, window {window}, {softmax}"
            )
    assert min(verdicts.values()) >= 16, verdicts


def test_hcp017_releases_that_know_sinks_start_with_2_8(upstream: Path) -> None:
    knowing = [
        version
        for version, path in releases(upstream)
        if "softmax_type" in {argument.arg for argument in parts(path)[0].args.args}
    ]
    assert min(tuple(map(int, version.split("."))) for version in knowing) >= (2, 8)


class _Reached(Exception):
    """The all-to-all itself: all shapes before it were right."""


@pytest.mark.torch
def test_hcp007_every_release_reshapes_heads_as_the_inner_size_rule_says(upstream: Path, launch_of: LaunchOf) -> None:
    import torch

    calls = []

    def all_to_all(*_: Any, **__: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise _Reached  # the queries went first, now the keys
        return _Anything()

    stand_in = SimpleNamespace(
        empty_like=torch.empty_like,
        distributed=SimpleNamespace(all_to_all_single=all_to_all),
        cuda=SimpleNamespace(stream=lambda _: pytest.fail("went on behind the keys")),
        Tensor=torch.Tensor,
    )
    for version, path in releases(upstream):
        tree = ast.parse(path.read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        wanted = [functions[name] for name in ("flash_attn_a2a_communicate", "get_bsh_dims") if name in functions]
        names = [argument.arg for argument in wanted[0].args.args]
        namespace: dict[str, Any] = {"torch": stand_in}
        exec(compiled([*wanted]), namespace)
        for queries, keys, inner in itertools.product((2, 4, 6, 8), (1, 2, 3, 4, 6), (2, 3, 4)):
            if queries % keys:
                continue
            calls.clear()
            tensors = [torch.empty(8, 1, heads, 4) for heads in (queries, keys, keys)]
            given = {
                "a2a_inputs": tensors,
                "seq_dim": 0,
                "cp_size": inner,
                "before_attn": True,
                "qkv_format": "sbhd",
                "a2a_input_names": ["q", "k", "v"],
            }
            with pytest.raises((_Reached, RuntimeError)) as outcome:
                namespace["flash_attn_a2a_communicate"](**{name: given.get(name) for name in names})
            launch = launch_of(
                "mlm",
                f"--num-attention-heads {queries} --group-query-attention --num-query-groups {keys} "
                f"--context-parallel-size {2 * inner} --cp-comm-type a2a+p2p "
                f"--hierarchical-context-parallel-sizes {inner} 2",
            )
            found = bool(check_launch(launch, (BY_ID["HCP007"],), fixes=False, verdict=False).findings)
            assert found == (outcome.type is RuntimeError), f"{version}: {queries} and {keys} heads over {inner} ranks"
