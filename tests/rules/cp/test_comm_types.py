"""CP rules on communication types."""

from __future__ import annotations

from support.launches import CP, HCP
from support.rules import FixRow, Row, finding, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP004", "mlm", f"{CP} 2 --cp-comm-type ulysses", "", "error"),
    ("CP004", "mlm", f"{CP} 2 --cp-comm-type p2p", "", "fine"),
    ("CP004", "bridge", "model.context_parallel_size=2 model.cp_comm_type=allgather", "", "needs attention_variant"),
    ("CP004", "bridge-provider", "", "", "needs cp"),
    ("CP004", "verl", "", "", "not concerned"),
    ("CP004", "bridge", "", "cp=2 cp_comm_type=ulysses", "error crash first-forward"),
    ("CP004", "bridge", "", "cp=2 cp_comm_type=allgather attention_variant=dsv4_hybrid", "fine"),
    (
        "CP004",
        "mlm",
        "",
        "cp=2 num_layers=2 cp_comm_type=allgather,ulysses attention_variant=dsa",
        "error crash first-forward",
    ),
    ("CP005", "verl", "", "", "not concerned"),
    ("CP005", "bridge", "", "cp_comm_type=a2a,a2a+p2p", "needs cp"),
    # A layer pattern counts the layers, whatever --num-layers says (validate_args of 0.17 and newer).
    (
        "CP005",
        "mlm",
        "--context-parallel-size 2 --num-layers 8 --hybrid-layer-pattern M*M* --cp-comm-type p2p p2p p2p p2p",
        "",
        "fine",
    ),
    (
        "CP005",
        "mlm",
        "--context-parallel-size 2 --num-layers 2 --hybrid-layer-pattern M*M* --cp-comm-type p2p a2a",
        "",
        "error crash config",
    ),
    ("CP023", "verl", "", "", "not concerned"),
    ("CP023", "mlm", "", "cp=8 cp_comm_type=a2a te=1.10", "fine"),
    ("CP023", "bridge", "", "cp_comm_type=all_gather", "needs cp"),
    ("CP023", "mlm", "", "cp=8 cp_comm_type=a2a te=1.9", "error silent never"),
    ("CP027", "bridge-provider", "", "cp=1", "not concerned"),
    ("CP027", "bridge-provider", "", "cp_comm_type=p2p,a2a", "needs cp"),
    ("CP027", "bridge", "", "cp=2 num_layers=2 cp_comm_type=p2p,a2a mcore=0.16.1", "error crash init"),
    ("CP027", "bridge", "", "cp=2 num_layers=2 cp_comm_type=p2p,a2a mcore=0.17", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("CP004", "mlm", "", "cp=2 cp_comm_type=allgather", "first forward pass fails; "),
    ("CP004", "mlm", "", "cp=2 cp_comm_type=ulysses", "first forward pass fails |"),
    ("CP004", "verl", "", "cp=2 cp_comm_type=allgather attention_variant=gdn", "first forward pass fails |"),
]


FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "CP004",
        "mlm",
        f"{CP} 2 --num-layers 3 --cp-comm-type p2p allgather a2a",
        "",
        ("cp_comm_type=p2p all_gather a2a", "cp_comm_type=p2p"),
    ),
    ("CP004", "mlm", "", "cp=2 cp_comm_type=ulysses", ("cp_comm_type=p2p",)),
    ("CP004", "mlm", "", "cp=2 num_layers=2 cp_comm_type=allgather,ulysses", ("cp_comm_type=p2p",)),
    ("CP005", "bridge", "", "cp=2 num_layers=4 cp_comm_type=p2p,a2a", ("model.cp_comm_type=p2p",)),
    ("CP005", "mlm", f"{HCP} --num-layers 4 --cp-comm-type a2a+p2p a2a", "", ("cp_comm_type=a2a+p2p",)),
    (
        "CP023",
        "mlm",
        f"{HCP} --num-layers 2 --cp-comm-type a2a a2a+p2p",
        "te=1.9",
        ("cp_comm_type=p2p hierarchical_context_parallel_sizes=null",),
    ),
    (
        "CP027",
        "verl",
        "",
        "cp=3 cp_comm_type=p2p,a2a+p2p mcore=0.16.1 hcp_sizes=2,2",
        (
            "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=p2p "
            "actor_rollout_ref.actor.megatron.override_transformer_config.hierarchical_context_parallel_sizes=null",
            "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=a2a+p2p",
        ),
    ),
    (
        "CP027",
        "bridge-provider",
        "",
        "cp=8 cp_comm_type=p2p,all_gather mcore=0.16",
        (
            "model.cp_comm_type=p2p",
            "model.cp_comm_type=all_gather",
        ),
    ),
]


def test_cp004_a_misspelt_type_in_a_list_is_mended_where_it_stands() -> None:
    of = launch("mlm", f"{CP} 2 --num-layers 3 --cp-comm-type p2p allgather a2a")
    assert finding("CP004", of, fixes=True).fixes[0].cli == ("--cp-comm-type", "p2p", "all_gather", "a2a")
