"""A fault in a stand-in is never upstream's: a copy of the package has one sown in it, and the run is not decided."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.dryrun.ask import HowToRun, outcome_of, request_of
from megatron_hcp.ground.child import Child
from support.dry_runs import launch_of
from support.fake_transformers import write_transformers
from support.tree import PACKAGE

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]

RAISES = "raise KeyError('sown')"
SEEDS = [
    ("device.py", "_nothing", ""),
    ("world.py", "new_group", ""),
    ("tensors.py", "followed_call", ""),
    ("values.py", "made_up", ""),
    ("packages.py", "install", ""),
    ("files.py", "late", ""),
    ("data.py", "build_sample_idx", ""),
    ("transformer_engine.py", "_linear", ""),
    ("transformer_engine.py", "_norm", ""),
    ("transformer_engine.py", "_attend", ""),
    ("fused.py", "rotate", ""),
    ("fused.py", "rotate_latent", "--multi-latent-attention --qk-layernorm --kv-lora-rank 128 --q-lora-rank 256"),
    ("fused.py", "cross_entropy", "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"),
    ("experts.py", "forward", "--num-experts 4"),
    ("routing.py", "even", "--num-experts 4 --moe-token-dispatcher-type alltoall"),
    ("kernel.py", "forward", ""),
    ("kernels.py", "apply", "--transformer-impl local --context-parallel-size 1 --normalization LayerNorm"),
    ("../program.py", "forward_step", ""),
]
"""The stand-in's file, the function in which a fault is sown, and the words that have it called: experts that are
dispatched by alltoall are routed where memory is counted."""
SHAPES = [("transformer_engine.py", "_linear"), ("transformer_engine.py", "_attend"), ("fused.py", "rotate")]


def sow(tmp_path: Path, file: str, function: str, fault: str) -> Path:
    """A copy of the sources in which the function begins with the fault."""
    copy = tmp_path / "megatron_hcp"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = (copy / "pretend/stand_ins" / file).resolve()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    found.body[:0] = ast.parse(fault).body
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    return tmp_path


def run(sources: Path, words: str) -> dict[str, Any]:
    request = request_of(launch_of(words), HowToRun(ranks="0", measure="alltoall" in words))
    done = subprocess.run(
        [sys.executable, "-B", "-m", "megatron_hcp.pretend"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources), "HOME": str(sources)},
    )
    outcome = outcome_of(0, "", Child(done.returncode, done.stdout, done.stderr))
    return {"verdict": outcome.verdict, "missing": (outcome.error or {}).get("missing", ""), "err": done.stderr[-500:]}


@pytest.mark.parametrize(("file", "function", "words"), SEEDS, ids=[f"{file}:{name}" for file, name, _ in SEEDS])
def test_a_fault_in_a_stand_in_decides_nothing(tmp_path: Path, file: str, function: str, words: str) -> None:
    told = run(sow(tmp_path, file, function, RAISES), words)
    assert told["verdict"] == "undecided", told
    assert "sown" in told["missing"] or "KeyError" in told["missing"], told


@pytest.mark.parametrize(("file", "function"), SHAPES)
def test_a_wrong_shape_of_a_stand_in_decides_nothing(tmp_path: Path, file: str, function: str) -> None:
    first = {"_linear": "inp", "_attend": "q", "rotate": "t"}[function]
    told = run(sow(tmp_path, file, function, f"return {first}[..., :1] * 1"), "")
    assert told["verdict"] == "undecided" and "the stand-in for" in told["missing"], told


CALLED = [
    ("conversations.py", "load_dataset", "load_dataset('json', 'x')"),
    ("conversations.py", "tokenize_conversation", "Tokenizer(None).tokenize_conversation([])"),
    ("frameworks/bridge.py", "_few_samples", "_few_samples(None)"),
    ("frameworks/bridge.py", "_tower", "_tower('a.Tower')"),
    ("frameworks/bridge.py", "_text", "_text(None)"),
    ("transformer_engine.py", "_gemm", "_gemm(1, 2)"),
    ("transformer_engine.py", "_mlp", "_mlp(None, 1)"),
    ("frameworks/slime.py", "create", "Backups.create()"),
    ("frameworks/slime.py", "_config", "_config()"),
    ("frameworks/slime_rollouts.py", "_samples", "_samples(None)"),
    ("frameworks/slime_rollouts.py", "_of_samples", "_of_samples({}, [])"),
    (
        "packages.py",
        "get_config_dict",
        "run_no_code_of_models(); from transformers import PretrainedConfig\nPretrainedConfig.get_config_dict({})",
    ),
    ("optimizers.py", "__init__", "Orthogonalized([], 1.0)"),
    ("frameworks/ms_swift.py", "_tokenizer", "_tokenizer()"),
    ("frameworks/nemo_rl.py", "_tokenizer", "_tokenizer()"),
    ("frameworks/verl.py", "_tokenizer", "_tokenizer()"),
    ("device.py", "_module_to", "_module_to(None, 0)"),
    ("frameworks/verl_rollouts.py", "rollouts", "rollouts(None, 1)"),
    ("frameworks/verl_rollouts.py", "conversations", "conversations(None, 1)"),
    ("frameworks/verl.py", "_context", "_context()"),
    ("frameworks/verl.py", "linear_cross_entropy", "linear_cross_entropy(1, 2, 3)"),
    ("frameworks/padding.py", "pad_input", "pad_input(None, None, 1, 1)"),
    ("sized.py", "_outside_of_the_mode", "_outside_of_the_mode(None)"),
    ("pipeline.py", "shapes", "shapes(None, False, False)"),
    ("kernels.py", "_sparse", "KERNELS['flash_mla']['flash_mla_sparse_fwd'](1)"),
    ("kernels.py", "_of_indexer", "KERNELS['cudnn']['DSA'].indexer_backward_wrapper(1, 2, 3)"),
    ("kernels.py", "_flex_attention", "KERNELS['torch.nn.attention.flex_attention']['flex_attention'](1, 2, 3)"),
]
"""The file, the function with the fault, and how upstream's code, which no wheel of megatron-core has, comes to it."""
UPSTREAMS = """
import sys
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.verdict import answer
RECORD.start([sys.argv[1]])
sys.path.insert(0, sys.argv[1])
try:
    import pretrain
except Exception as error:
    print(answer(error)["missing"])
"""


@pytest.mark.parametrize(("file", "function", "call"), CALLED, ids=[f"{file}:{name}" for file, name, _ in CALLED])
def test_a_fault_in_a_stand_in_that_upstream_calls_is_not_upstreams(
    tmp_path: Path, file: str, function: str, call: str
) -> None:
    sources = sow(tmp_path, file, function, RAISES)
    (upstream := tmp_path / "upstream").mkdir()
    write_transformers(upstream)
    module = f"megatron_hcp.pretend.stand_ins.{file.removesuffix('.py').replace('/', '.')}"
    (upstream / "pretrain.py").write_text(f"import {module} as m\nm.{call}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-B", "-c", UPSTREAMS, str(upstream)],
        capture_output=True,
        text=True,
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources)},
    )
    assert "a stand-in" in done.stdout and "sown" in done.stdout, done.stdout + done.stderr


def test_every_stand_in_has_a_fault_sown_in_it() -> None:
    folder = PACKAGE / "pretend/stand_ins"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.name != "__init__.py"}
    files -= {"contract.py"}
    assert files == {file for file, *_ in (*SEEDS, *CALLED) if not file.startswith("..")}
