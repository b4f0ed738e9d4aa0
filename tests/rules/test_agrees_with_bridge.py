"""Our verdict against the blocks of Megatron-Bridge's own `ConfigContainer.validate`, out of each unpacked release.

The blocks on context parallelism and on packing run here by themselves, without torch, on plain objects.
"""

from __future__ import annotations
import __future__

import ast
import itertools
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import RULES

pytestmark = pytest.mark.upstream

BLOCKS = ("self.model.context_parallel_size > 1", "packed_sequence_specs is not None", "pack_sequences_in_batch")
OURS = {"CP001", "LOSS001", "PACK003"}


class FinetuningDatasetConfig(SimpleNamespace):
    """Stands for Bridge's class of that name, for its isinstance."""


@cache
def blocks(release: Path) -> list[Any]:
    tree = ast.parse((release / "megatron" / "bridge" / "training" / "config.py").read_text())
    owner = next(item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "ConfigContainer")
    validate = next(item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "validate")
    found = [
        item
        for item in validate.body
        if isinstance(item, ast.If) and any(text in ast.unparse(item.test) for text in BLOCKS)
    ]
    assert len(found) == len(BLOCKS), [ast.unparse(item.test) for item in found]
    flags = __future__.annotations.compiler_flag
    return [compile(ast.Module([item], []), "validate", "exec", flags=flags, dont_inherit=True) for item in found]


def upstream_verdict(release: Path, case: dict[str, Any]) -> str | None:
    dataset = (FinetuningDatasetConfig if case["finetune"] else SimpleNamespace)(
        packed_sequence_specs=SimpleNamespace(packed_sequence_size=case["row"]) if case["row"] else None,
        pack_sequences_in_batch=case["in_batch"],
    )
    config = SimpleNamespace(
        model=SimpleNamespace(
            context_parallel_size=case["cp"], seq_length=case["length"], calculate_per_token_loss=case["per_token"]
        ),
        ddp=SimpleNamespace(average_in_collective=case["average"]),
        dataset=dataset,
        train=SimpleNamespace(micro_batch_size=case["rows"], global_batch_size=8),
    )
    for block in blocks(release):
        try:
            exec(block, {"FinetuningDatasetConfig": FinetuningDatasetConfig, "self": config})
        except (AssertionError, ValueError) as error:
            return str(error) or "AssertionError"
    return None


def our_verdict(launch_of: Callable[..., Launch], version: str, case: dict[str, Any]) -> list[str]:
    text = (
        f"model.context_parallel_size={case['cp']} model.seq_length={case['length']} "
        f"model.calculate_per_token_loss={case['per_token']} ddp.average_in_collective={case['average']} "
        f"train.micro_batch_size={case['rows']} dataset.pack_sequences_in_batch={case['in_batch']} "
        f"dataset.packed_sequence_specs.packed_sequence_size={case['row'] or 'null'} "
        "dataset.packed_sequence_specs.pad_seq_to_mult=48 dataset.packing_buffer_size=null "
        "dist.use_megatron_fsdp=False ddp.use_megatron_fsdp=False"
    )
    launch = launch_of("bridge", text, f"bridge={version} finetune={case['finetune']} te=2.18 mcore=0.15")
    report = check_launch(launch, RULES, fixes=False, verdict=False)
    assert not [item.rule.id for item in report.not_checked if item.rule.id in OURS]
    return [item.rule.id for item in report.findings if item.severity == "error" and item.rule.id in OURS]


def test_every_release_agrees_on_lengths_losses_and_packing(upstream: Path, launch_of: Callable[..., Launch]) -> None:
    releases = sorted(upstream.glob("megatron-bridge-0.3*"))
    assert releases, f"no release of megatron-bridge in {upstream}"
    fired: Counter[str] = Counter()
    for release in releases:
        version = release.name.rpartition("-")[2]
        for cp, length, finetune, per_token, average, row, in_batch, rows in itertools.product(
            (1, 2, 3), (48, 50), (True, False), (True, False), (True, False), (0, 48), (True, False), (1, 2)
        ):
            if row and (in_batch or not finetune):
                continue  # packed rows are fine-tuning data, and in-batch packing is another kind
            case = {
                "cp": cp,
                "length": length,
                "finetune": finetune,
                "per_token": per_token,
                "average": average,
                "row": row,
                "in_batch": in_batch,
                "rows": rows,
            }
            theirs, ours = upstream_verdict(release, case), our_verdict(launch_of, version, case)
            assert (theirs is None) == (not ours), f"{version} says {theirs}; our errors {ours}; {case}"
            fired.update(ours or ["accepted"])
    assert set(fired) == OURS | {"accepted"}, fired
