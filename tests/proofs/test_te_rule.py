"""Our stand-in decides what a cp_group means as every Transformer Engine version does, by that version's own source."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.proofs.te_rule import OLD_SOURCE, SOURCES, load_te_rule  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.upstream]

READ = ("cp_group", "cp_global_ranks", "cp_comm_type")
"""The attributes that assert_hcp_active reads."""


@pytest.fixture
def versions(upstream):
    found = sorted(upstream.glob("transformer-engine-*"))
    assert len(found) >= 4, f"{upstream} has no Transformer Engine sources"
    return found


def test_our_attention_decides_like_every_version_for_every_kind_of_cp_group(versions, ranks):
    from megatron_hcp.proofs.dot_product_attention import DotProductAttention
    from megatron_hcp.runtime.groups import GroupBuilder

    def work(rank):
        import torch.distributed as dist

        rules = {path.name: load_te_rule(path) for path in versions}
        decisions = []
        with GroupBuilder(30) as builder:
            levels = builder.build_levels([range(4)], (2, 2))
            for group in (None, [], dist.group.WORLD, levels, levels[:1], [dist.group.WORLD], tuple(levels)):
                for comm_type in ("p2p", "a2a+p2p"):
                    ours = DotProductAttention(8, 16, cp_group=group, cp_comm_type=comm_type)
                    decisions.append(ours.cp_size)
                    for name, rule in rules.items():
                        assert rule(ours) == (ours.cp_size, ours.cp_size > 1), (name, group, comm_type)
        return decisions

    assert ranks(work)[0] == [1, 1, 1, 1, 4, 4, 4, 4, 2, 2, 4, 4, 1, 1]


def test_the_attributes_that_the_probe_reads_are_set_by_every_version(versions):
    for path in versions:
        package = path / "transformer_engine"
        source = next(
            package / name for name in (SOURCES["DotProductAttention"], OLD_SOURCE) if (package / name).is_file()
        )
        cls = next(
            node
            for node in ast.parse(source.read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == "DotProductAttention"
        )
        for method in ("__init__", "set_context_parallel_group"):
            function = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == method)
            stored = {
                node.attr
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            }
            assert stored >= set(READ), (path.name, method)
            assert {argument.arg for argument in function.args.args} >= set(READ), (path.name, method)


def test_the_names_that_the_rule_uses_mean_what_we_put_in_their_place(versions):
    for path in versions:
        package = path / "transformer_engine" / "pytorch"
        assert "dist_group_type = torch.distributed.ProcessGroup" in (package / "constants.py").read_text(), path.name
        function = next(
            node
            for node in ast.parse((package / "distributed.py").read_text()).body
            if isinstance(node, ast.FunctionDef) and node.name == "get_distributed_world_size"
        )
        assert "torch.distributed.get_world_size(group=group)" in ast.unparse(function.body[-1]), path.name


def test_the_rule_is_read_from_the_source_not_assumed(versions, tmp_path, ranks):
    newest = versions[-1] / "transformer_engine"
    for name in set(SOURCES.values()):
        target = tmp_path / "transformer_engine" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            (newest / name).read_text().replace("context_parallel = cp_size > 1", "context_parallel = cp_size > 99")
        )
    decision = ranks(lambda rank: load_te_rule(tmp_path)(SimpleNamespace(cp_group=None, cp_comm_type="p2p")), size=1)[0]
    assert decision == (1, False)
    for name in set(SOURCES.values()):
        target = tmp_path / "transformer_engine" / name
        target.write_text(target.read_text().replace("cp_size > 99", "cp_size >= 1"))
    load = load_te_rule(tmp_path)
    assert ranks(lambda rank: load(SimpleNamespace(cp_group=None, cp_comm_type="p2p")), size=1)[0] == (1, True)


def test_a_source_that_decides_in_an_unknown_way_is_refused(versions, tmp_path):
    for name in set(SOURCES.values()):
        target = tmp_path / "transformer_engine" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("class DotProductAttention:\n    def forward(self):\n        pass\n")
    with pytest.raises(HcpError, match="does not derive cp_size"):
        load_te_rule(tmp_path)
    with pytest.raises(HcpError, match="no source of DotProductAttention"):
        load_te_rule(tmp_path / "elsewhere")
