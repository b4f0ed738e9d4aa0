"""Our verdict on flat context parallelism against Transformer Engine's own, for every unpacked release from 2.4 on.

Each case has one special feature (a window, sinks, a bias, MLA, FP8, the largest logit, padding between sequences, …)
in one communication type, layout, backend and architecture: the fields that the catalogue names.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Rule
from support.te_upstream import NO_BACKEND, Call, Release

pytestmark = pytest.mark.upstream

SAMPLE = 600  # of 2,912 for each release; all of them agree as well, in a minute and a half
OURS = {"CP004", "CP007", "CP009", "CP010", "CP011", "CP012", "CP013", "CP014", "CP015", "CP016", "PACK005", "PACK007"}
_OURS = tuple(rule for rule in RULES if rule.id in OURS)
FEATURES: dict[str, dict[str, object]] = {
    "none": {},
    "window": {"window": (32, 0)},
    "sinks": {"softmax": "learnable"},
    "bias": {"bias": True},
    "MLA": {"mla": True},
    "fp8": {"fp8": "delayed"},
    "max_logit": {"max_logit": True},
    "padding": {"padded": True},
    "odd heads": {"heads": 6, "kv_heads": 3},
    "one KV head": {"kv_heads": 1},
    "sinks, old cuDNN": {"softmax": "learnable", "cudnn": (9, 17, 0)},
    "FlashAttention 4 pinned": {"pinned": True},
    "sinks, deterministic": {"softmax": "learnable", "deterministic": True},
}
ELSEWHERE = {
    # Upstream rejects these with any number of ranks; they are no matter of context parallelism.
    "FlashAttention 2 has no MLA before 2.15": lambda call, te: call.mla and call.backend == "flash",
    "cuDNN's packed data starts with Hopper": lambda call, te: (
        call.fmt == "thd"
        and call.arch < 90
        and (call.backend == "fused" or call.padded or call.max_logit or call.mla or call.softmax != "vanilla")
    ),
    "FlashAttention 4 starts with Hopper": lambda call, te: call.pinned and call.flash == 4 and call.arch < 90,
    "one installed generation beside FlashAttention 2": lambda call, te: call.pinned and call.flash != 4,
    "padding between sequences is a matter of packed data": lambda call, te: call.padded and call.fmt != "thd",
}


def release_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def cases() -> Iterator[tuple[str, Call]]:
    kinds = ("p2p", "a2a", "all_gather", "allgather")
    layouts = itertools.product(kinds, ("sbhd", "thd"), ("auto", "flash", "fused", "unfused"), (80, 90, 100), (2, 3, 4))
    for comm, fmt, backend, arch, flash in layouts:
        if flash == 3 and arch != 90:
            continue
        for name, feature in FEATURES.items():
            call = Call(comm, fmt, backend, arch, flash)._replace(**feature)  # type: ignore[arg-type]
            yield name, call


def our_errors(
    launch_of: Callable[..., Launch], version: str, call: Call, rules: tuple[Rule, ...] = _OURS
) -> list[str]:
    keys = {
        "model.context_parallel_size": 2,
        "model.cp_comm_type": call.comm,
        "model.attention_backend": call.backend,
        "model.num_attention_heads": call.heads,
        "model.num_query_groups": call.kv_heads,
        "model.window_attn_skip_freq": "null",
        "model.tensor_model_parallel_size": 1,
        "model.softmax_type": call.softmax,
        "model.transformer_impl": "transformer_engine",
        "model.window_size": "null" if call.window == (-1, 0) else str(list(call.window)).replace(" ", ""),
        "model.multi_latent_attention": call.mla,
        "model.deterministic_mode": call.deterministic,
        "model.log_max_attention_logit": call.max_logit,
        "model.experimental_attention_variant": "null",
        "model.fp8": "hybrid" if call.fp8 else "null",
        "model.fp8_recipe": call.fp8 or "delayed",
        "model.fp8_dot_product_attention": bool(call.fp8),
        "model.apply_rope_fusion": False,
        "model.flash_attention_version": call.flash if call.pinned else "null",
    }
    if call.fmt == "thd":
        keys["dataset.packed_sequence_specs.packed_sequence_size"] = 64
        keys["dataset.packed_sequence_specs.pad_seq_to_mult"] = 4 if call.padded else 1
    assume = (
        f"te={version} mcore=0.17 bridge=0.5 arch=sm{call.arch} thd={call.fmt == 'thd'} attention_bias={call.bias} "
        f"cudnn={'.'.join(map(str, call.cudnn))} flash_attn={call.flash}.0 env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"
    )
    launch = launch_of("bridge", " ".join(f"{key}={value}" for key, value in keys.items()), assume)
    report = check_launch(launch, rules, fixes=False, verdict=False)
    missing = [(item.rule.id, item.needs) for item in report.not_checked if item.rule.id in OURS]
    assert not missing, missing
    return [item.rule.id for item in report.findings if item.severity == "error" and item.rule.id in OURS]


def test_every_release_agrees(upstream: Path, launch_of: Callable[..., Launch]) -> None:
    folders = sorted(upstream.glob("transformer-engine-2*"))
    releases = [Release(folder) for folder in folders if release_of(folder.name.rpartition("-")[2]) >= (2, 4)]
    assert len(releases) >= 6, f"too few releases of transformer-engine in {upstream} to judge version gates"
    every = list(cases())
    chosen = random.Random(20).sample(every, SAMPLE)
    fired: Counter[str] = Counter()
    disagreements = []
    for release in releases:
        for name, call in chosen:
            if any(excused(call, release.version) for excused in ELSEWHERE.values()):
                continue
            theirs, ours = release.verdict(call), our_errors(launch_of, release.version, call)
            fired.update(ours)
            fired["accepted" if theirs is None else "rejected"] += 1
            if (theirs is None) != (not ours):
                disagreements.append(f"{release.version} {name}: {theirs}; ours {ours}; {call}")
    assert not disagreements, f"{len(disagreements)} of {fired}:\n" + "\n".join(disagreements[:20])
    assert set(fired) >= OURS, f"never seen: {OURS - set(fired)}"
    assert min(fired["accepted"], fired["rejected"]) > 1000, fired


def test_the_comparison_notices_a_rule_that_is_missing(upstream: Path, launch_of: Callable[..., Launch]) -> None:
    release = Release(upstream / "transformer-engine-2.14.0")
    call = Call(window=(32, 0))
    assert "sliding window" in str(release.verdict(call))
    assert our_errors(launch_of, release.version, call) == ["CP009"]
    assert our_errors(launch_of, release.version, call, tuple(rule for rule in RULES if rule.id != "CP009")) == []


@pytest.mark.parametrize(
    ("version", "call", "text"),
    [
        ("2.20.2", Call("allgather"), "Unsupported communication type"),
        ("2.20.2", Call("a2a", kv_heads=1), "num_heads % cp_size"),
        ("2.9.0", Call("a2a", "thd", "fused"), "mask type is not supported"),
        ("2.20.2", Call(backend="unfused"), NO_BACKEND),
        ("2.20.2", Call(), "None"),
    ],
)
def test_the_stand_ins_let_upstreams_own_words_through(upstream: Path, version: str, call: Call, text: str) -> None:
    assert text in str(Release(upstream / f"transformer-engine-{version}").verdict(call))
