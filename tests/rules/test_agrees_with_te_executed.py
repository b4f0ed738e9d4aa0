"""Our verdict against what Transformer Engine's own code did, in every release run (lab/results/te_cpu.json).

A rule says error exactly where the executed code refuses or is wrong; each case is compared at both ends of every
range of releases that behave alike. test_execute.py holds the record to the code of the releases that CI has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Rule

pytestmark = pytest.mark.slow

RECORD = json.loads((Path(__file__).parents[2] / "lab/results/te_cpu.json").read_text(encoding="utf-8"))
RELEASES: list[str] = RECORD["releases"]
FAMILIES = ("HCP", "CP", "PACK", "KNOWN")
SPEAKING = {"CP009", "CP010", "CP015", "HCP014", "HCP017", "HCP018", "PACK005", "PACK007", "KNOWN017"}
"""The rules with a subject in the matrix."""
NOT_EXECUTED = {
    "a mask that is not causal": "no launch of a language model asks for it",
    "no load balance": "Megatron-LM and Bridge do not pass the strategy on",
    "FlashAttention 3 in 2.1": "another interface (flashattn-hopper), without a stand-in",
    "CP004, CP007, CP011 to CP014, CP016, HCP003, HCP007, HCP015, HCP016": "no case of the matrix has their subject "
    "(no backend at all, biases, FP8, FlashAttention 4, the largest logit, three levels, heads that do not divide): "
    "test_agrees_with_te_backends.py and hcp/test_agrees_with_transformer_engine.py evaluate upstream's checks",
    "what cuDNN refuses": "compiled: the stand-in takes every call",
    "FlashAttention 2 with MLA heads before 2.17": "refused with any number of ranks, so no matter of CP",
}
"""What no case here says anything about, and why."""
WITHOUT_CP = ("Disabling FlashAttention as it does not support MLA.", "FlashAttention 2 as it does not support MLA.")
Cell = tuple[str, str, str, str]


def cells() -> Iterator[tuple[Cell, str, str]]:
    """Each case, at the first and the last release of each range, with what happened there."""
    for name, entries in RECORD["cases"].items():
        cell = tuple(name.split(", "))
        assert len(cell) == 4, name
        ends = [RELEASES.index(entry["since"]) for entry in entries[1:]] + [len(RELEASES)]
        for entry, end in zip(entries, ends):
            for release in dict.fromkeys((entry["since"], RELEASES[end - 1])):
                if entry["verdict"] != "not executed" and not entry["not_chosen"].endswith(WITHOUT_CP):
                    yield cell, release, entry["verdict"]


def launch_for(launch_of: Callable[..., Launch], cell: Cell, release: str) -> Launch:
    comm, layout, kernel, feature = cell
    is_packed = layout.startswith("thd")
    keys: dict[str, object] = {
        "model.context_parallel_size": 4,
        "model.tensor_model_parallel_size": 1,
        "model.cp_comm_type": comm,
        "model.attention_backend": "fused" if kernel == "cuDNN" else "flash",
        "model.num_attention_heads": 8,
        "model.num_query_groups": 4 if feature == "GQA" else 8,
        "model.window_attn_skip_freq": "null",
        "model.window_size": "[5,0]" if feature == "window" else "null",
        "model.softmax_type": "learnable" if feature == "sinks" else "vanilla",
        "model.multi_latent_attention": feature == "MLA heads",
        "model.transformer_impl": "transformer_engine",
        "model.deterministic_mode": False,
        "model.experimental_attention_variant": "null",
        "model.apply_rope_fusion": False,
        "model.fp8": "null",
        "train.micro_batch_size": 1,
    }
    if comm == "a2a+p2p":
        keys["model.hierarchical_context_parallel_sizes"] = "[2,2]"
        keys["dist.use_decentralized_pg"] = False
    if is_packed:
        keys["dataset.packed_sequence_specs.packed_sequence_size"] = 64
        keys["dataset.packed_sequence_specs.pad_seq_to_mult"] = 8 if layout == "thd padded" else 1
    assume = (
        f"te={release} mcore=0.17 bridge=0.5 arch=sm90 thd={is_packed} cudnn=9.21 attention_bias=False "
        f"flash_attn={'3.0' if kernel.endswith('3') else '2.7.4'}"
    )
    return launch_of("bridge", " ".join(f"{key}={value}" for key, value in keys.items()), assume)


def errors_of(launch: Launch, rules: tuple[Rule, ...] = RULES) -> list[str]:
    ours = tuple(rule for rule in rules if rule.id.rstrip("0123456789") in FAMILIES and _speaks_of_te(rule))
    findings = check_launch(launch, ours, fixes=False).findings
    return [finding.rule.id for finding in findings if finding.severity == "error"]


def _speaks_of_te(rule: Rule) -> bool:
    return any(source.repo == "transformer-engine" for source in rule.source)


def is_concerned(cell: Cell) -> bool:
    return cell[3] not in ("full", "no load balance")


def test_a_rule_says_error_exactly_where_the_executed_code_refuses_or_is_wrong(
    launch_of: Callable[..., Launch],
) -> None:
    seen: Counter[str] = Counter()
    disagreements = []
    for cell, release, verdict in cells():
        if not is_concerned(cell):
            continue
        ours = errors_of(launch_for(launch_of, cell, release))
        seen.update((verdict, *ours))
        if (verdict == "right") == bool(ours):
            disagreements.append(f"{release} {', '.join(cell)}: {verdict}; ours {ours}")
    assert not disagreements, f"{len(disagreements)} of {seen}:\n" + "\n".join(disagreements)
    assert set(seen) >= SPEAKING, f"never seen: {SPEAKING - set(seen)}"
    assert min(seen["right"], seen["refused"]) > 100 and seen["wrong"] >= 4, seen


def test_the_comparison_misses_each_rule_that_is_left_out(launch_of: Callable[..., Launch]) -> None:
    alone = {
        tuple(errors_of(launch_for(launch_of, cell, release)))
        for cell, release, verdict in cells()
        if is_concerned(cell) and verdict != "right"
    }
    assert {ids[0] for ids in alone if len(ids) == 1} >= SPEAKING
