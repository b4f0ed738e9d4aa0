"""KEY005: a key that the release reads nowhere is found, in the releases that don't read it and only if it is set."""

from __future__ import annotations

import re

import pytest

from megatron_hcp.rules.key.unread import UNREAD
from support.needs import UPSTREAM
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

ACTOR = "actor_rollout_ref.actor"
MEGATRON = f"{ACTOR}.megatron.tensor_model_parallel_size=2"
FOUND = "warning silent never"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("KEY005", "verl", f"{MEGATRON} actor_rollout_ref.nccl_timeout=7200", "verl=0.8", FOUND),
    ("KEY005", "verl", f"{MEGATRON} actor_rollout_ref.nccl_timeout=7200", "verl=0.7", "fine"),
    ("KEY005", "verl", f"{MEGATRON} actor_rollout_ref.nccl_timeout=7200", "", "needs verl"),
    ("KEY005", "verl", f"{MEGATRON} actor_rollout_ref.nccl_timeout=600", "verl=0.9", "not concerned"),
    ("KEY005", "verl", f"{MEGATRON} critic.nccl_timeout=7200", "verl=0.9", FOUND),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.freeze_vision_tower=True", "verl=0.6", FOUND),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.freeze_vision_tower=True", "verl=0.5.0", "fine"),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.freeze_vision_tower=False", "verl=0.6", "not concerned"),
    ("KEY005", "verl", f"{ACTOR}.strategy=fsdp2 {ACTOR}.freeze_vision_tower=True", "verl=0.7", "not concerned"),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.megatron.router_replay.replay_file=f", "verl=0.7", FOUND),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.megatron.router_replay.replay_file=f", "verl=0.6.0", "fine"),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.router_replay.mode=R3", "verl=0.8", FOUND),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.router_replay.mode=R3", "verl=0.7.0", "fine"),
    ("KEY005", "verl", f"{MEGATRON} {ACTOR}.megatron.router_replay.mode=R3", "verl=0.8", "not concerned"),
    ("KEY005", "bridge", "model.tensor_model_parallel_size=2", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, text
    (
        "KEY005",
        "verl",
        f"{MEGATRON} {ACTOR}.router_replay.mode=R3 critic.nccl_timeout=1",
        "verl=0.8",
        "found: actor_rollout_ref.actor.router_replay.mode=r3, and 1 more",
    ),
]


@pytest.mark.upstream
def test_key005_no_code_of_the_newest_release_mentions_a_key_whose_name_is_its_own() -> None:
    """Words of other backends, of configuration classes and of general use are left out."""
    folder = max(UPSTREAM.glob("verl-*/verl"))
    files = [path for path in folder.rglob("*.py") if "config" not in path.parts and "veomni" not in str(path)]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in ("nccl_timeout", "freeze_vision_tower", "replay_file", "forward_max_token_len_per_gpu"):
        assert any(row.ending.endswith(name) for row in UNREAD)
        assert not re.search(rf"config\.{name}|\"{name}\"", code), name
