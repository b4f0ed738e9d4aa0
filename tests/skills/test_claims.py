"""Claims of the cards that neither a rule nor a verification step proves: read off every release's sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from megatron_hcp.judge.anchored import segment_of

CONFIG = "megatron/core/transformer/transformer_config.py"
STATE = "megatron/core/parallel_state.py"


def releases(upstream: Path) -> list[Path]:
    found = sorted(upstream.glob("megatron-core-*"))
    assert len(found) >= 5
    return found


@pytest.mark.upstream
def test_the_config_accepts_what_the_published_card_says_it_rejects(upstream: Path) -> None:
    """The published card: `TransformerConfig.__post_init__` enforces the sizes. It does not mention them."""
    for release in releases(upstream):
        checks = segment_of(release / CONFIG, "TransformerConfig.__post_init__")
        assert checks is not None and "cp_comm_type" in checks, release
        assert "hierarchical_context_parallel_sizes" not in checks, release


@pytest.mark.upstream
def test_no_release_logs_the_name_of_the_hierarchical_groups(upstream: Path) -> None:
    """Every text that holds the name is a group's description, an error's or a docstring; none goes to a log."""
    printing = re.compile(r"(?:logger\.\w+|logging\.\w+|log_\w+|print\w*)\Z")
    for release in releases(upstream):
        for file in (release / "megatron").rglob("*.py"):
            text = file.read_text(encoding="utf-8", errors="replace")
            if "HIERARCHICAL_CONTEXT_PARALLEL" not in text:
                continue
            for call in ast.walk(ast.parse(text)):
                if isinstance(call, ast.Call) and printing.search(ast.unparse(call.func)):
                    texts = [
                        node.value
                        for node in ast.walk(call)
                        if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    ]
                    assert not any("hierarchical" in word.lower() for word in texts), (file, call.lineno)
