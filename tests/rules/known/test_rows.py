"""KNOWN rows, as tables made from them: every end of a range of releases on both sides, every clause broken once."""

from __future__ import annotations

from collections.abc import Iterator

from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.facts.last_read import of_package
from megatron_hcp.rules.known import megatron
from megatron_hcp.rules.known.condition import Clause, clauses_of
from megatron_hcp.rules.known.row import KNOWN, Known, at_version, spans_of
from megatron_hcp.rules.registry import BY_ID, RULES
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

ROWS: tuple[Known, ...] = tuple(KNOWN[rule.id] for rule in RULES if rule.id in KNOWN)
ANOTHER = {
    "eval_interval": "100",
    "packing": "document",
    "cp_comm_type": "a2a",
    "hybrid_pattern": "*-",
    "arch": "sm90",
    "ep": "2",
    "etp": "2",
    "kv_heads": "64",
    "first_stage_layers": "2",
}
"""For facts that a clause compares with words: a value that none of them has."""

_PACKED_BY_VERL = (
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000"
)
_BALANCED = "--context-parallel-size 2 --num-experts 8 --expert-model-parallel-size 2"


def before(version: str) -> str:
    """A release just before this one.

    >>> before("0.16"), before("0.5.1"), before("2.0")
    ('0.15.99', '0.5.0', '1.99')
    """
    major, minor, micro = (*map(int, version.split(".")), 0, 0)[:3]
    if micro:
        return f"{major}.{minor}.{micro - 1}"
    return f"{major}.{minor - 1}.99" if minor else f"{major - 1}.99"


def read_before(package: str, version: str) -> str:
    """A release just before this one, no newer than the last that was read."""
    last, just_before = of_package(package), before(version)
    assert last is not None
    return min(just_before, last.version, key=lambda text: tuple(map(int, text.split("."))))


def broken(clause: Clause) -> str:
    """A value of the clause's fact at which it does not hold."""
    value = clause.values[0] if clause.values else None
    if clause.op in ("true", "false"):
        off = "false" if FACTS[clause.name].type == "bool" else "null"
        return off if clause.op == "true" else "true"
    if clause.op == "!=":
        return "null" if value is None else str(value).lower()
    if clause.is_version:
        return before(str(value)) if clause.op == ">=" else str(value)
    if clause.op in ("=", ">=") and type(value) is int:
        return str(value + 1 if clause.op == "=" else value - 1)
    if clause.op in (">", "<>"):
        return str(value if type(value) is int else 1)
    another = ANOTHER.get(clause.name, "other")
    return "p2p" if another in clause.values else another


def versions(row: Known) -> Iterator[Row]:
    """The rows on both sides of each end of a range."""
    for since, mended in spans_of(row.versions):
        for version, said in ((since, row.outcome), (mended, "fine")):
            if version is not None:
                beyond = "fine" if version == since else row.outcome
                for at, expected in ((version, said), (read_before(row.package, version), beyond)):
                    launch = at_version(row.launch, row.package, at)
                    yield row.id, launch.dialect, launch.text, launch.assume, expected


def clauses(row: Known) -> Iterator[Row]:
    """The row's bad launch with each clause broken in turn."""
    bad = BY_ID[row.id].bad
    for clause in clauses_of(row.when):
        yield row.id, bad.dialect, bad.text, f"{bad.assume} {clause.name}={broken(clause)}", "not concerned"


def unknown(row: Known) -> Row:
    """The row's bad launch without the version that decides: a note does not ask for it."""
    words = [word for word in row.launch.assume.split() if not word.startswith(f"{row.package}=")]
    return (
        row.id,
        row.launch.dialect,
        row.launch.text,
        " ".join(words),
        "not concerned" if row.outcome.startswith("info ") else f"needs {row.package}",
    )


VERDICTS: list[Row] = [verdict for row in ROWS for verdict in (*versions(row), *clauses(row), unknown(row))] + [
    # rule, dialect, launch, assumed, verdict
    ("KNOWN004", "mlm", "--context-parallel-size 2 --mtp-num-layers 1", "world_size=2 mcore=0.19", "not concerned"),
    ("KNOWN004", "mlm", "--context-parallel-size 2 --mtp-num-layers 1", "mcore=0.19", "not concerned"),  # how many?
    # A row is about dev only if its source was found there: KNOWN004's was not.
    (
        "KNOWN004",
        "mlm",
        "--context-parallel-size 2 --mtp-num-layers 1",
        "world_size=4 mcore=0.19.0 mcore_branch=dev",
        "not concerned",
    ),
    # An error that nobody would see asks for the release that it hangs on.
    ("KNOWN017", "mlm", KNOWN["KNOWN017"].launch.text, "te=2.18 arch=sm90", "needs flash_attn"),
    ("KNOWN017", "mlm", KNOWN["KNOWN017"].launch.text, "te=2.18 arch=sm90 flash_attn=3.0", "not concerned"),
    ("KNOWN017", "mlm", KNOWN["KNOWN017"].launch.text, "te=2.17 arch=sm90", "fine"),
    ("KNOWN017", "mlm", "--context-parallel-size 2 --attention-backend flash", "te=2.18", "not concerned"),
    # The step of Qwen3-Omni ignores the switch before 0.6, and verl's engine pads rows that aren't packed.
    (
        "KNOWN130",
        "bridge",
        "model._target_=megatron.bridge.models.qwen_omni.qwen3_omni_provider.Qwen3OmniModelProvider "
        "dataset.pack_sequences_in_batch=true train.micro_batch_size=2",
        "bridge=0.5.1",
        "fine",
    ),
    ("KNOWN134", "verl", KNOWN["KNOWN134"].launch.text, "verl=0.7.1", "warning crash first-forward"),
    # Since 0.8 verl reads its engine's key alone.
    *(
        ("KNOWN076", "verl", KNOWN["KNOWN076"].launch.text.replace(".megatron.router", old), "verl=0.8", said)
        for old, said in ((".router", "not concerned"), (".megatron.router", "warning crash training"))
    ),
    # Conversations of which nobody says that they are some, and rows that aren't padded.
    (
        "KNOWN143",
        "bridge",
        KNOWN["KNOWN143"].launch.text.replace("true", "false"),
        "bridge=0.5",
        "not concerned",
    ),
    ("KNOWN144", "ms-swift", "--model Qwen/Qwen3-8B --context_parallel_size 2", "ms_swift=3.9.3", "not concerned"),
    # cuDNN 9.10.2 is sound, and flash attention isn't cuDNN's.
    ("KNOWN140", "mlm", "--attention-backend fused", "te=2.5 cudnn=9.10.2", "not concerned"),
    ("KNOWN140", "mlm", "--attention-backend flash", "te=2.5 cudnn=9.10.1", "not concerned"),
    # Routes of the rollout need no recording.
    (
        "KNOWN138",
        "slime",
        f"{KNOWN['KNOWN138'].launch.text} --use-rollout-routing-replay",
        "slime=0.3",
        "not concerned",
    ),
    # slime's own Megatron-LM mends it, whatever release it is built from.
    (
        "KNOWN044",
        "slime",
        "",
        "mcore=0.16.0 mtp_layers=1 thd=true recompute_granularity=full recompute_method=uniform fp8=null",
        "not concerned",
    ),
    (
        "KNOWN044",
        "mlm",
        "",
        "mcore=0.16.0 mtp_layers=1 thd=true recompute_granularity=full recompute_method=uniform fp8=null",
        "error crash first-forward",
    ),
    # Several auxiliary losses have several coefficients; a router that balances nothing has none.
    ("KNOWN040", "mlm", f"{_BALANCED} --moe-aux-loss-coeff 1e-2 1e-3", "mcore=0.15.3", "warning silent never"),
    ("KNOWN040", "mlm", f"{_BALANCED} --moe-aux-loss-coeff 0.0", "mcore=0.15.3", "not concerned"),
    ("KNOWN040", "mlm", _BALANCED, "mcore=0.15.3", "not concerned"),
    (
        "KNOWN040",
        "mlm",
        f"{_BALANCED} --moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type none",
        "mcore=0.15.3",
        "not concerned",
    ),
    # Before 0.6 verl leaves the choice to megatron-core, whose default prefers cuDNN on Hopper.
    *(
        ("KNOWN053", "verl", _PACKED_BY_VERL, f"te=2.1 arch=sm90 verl={verl}", said)
        for verl, said in (("0.5", "warning silent never"), ("0.6", "not concerned"))
    ),
    (
        "KNOWN021",
        "mlm",
        "--context-parallel-size 4",
        "te=1.9 env.NVTE_BATCH_MHA_P2P_COMM=0",
        "info note never",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, text
    *((row.id, BY_ID[row.id].bad.dialect, BY_ID[row.id].bad.text, BY_ID[row.id].bad.assume, row.issue) for row in ROWS),
    ("KNOWN001", "mlm", megatron.ROWS[0].launch.text, "mcore=0.16.1", "wanted: megatron-core 0.17 or newer, or a"),
    (
        "KNOWN001",
        "mlm",
        megatron.ROWS[0].launch.text,
        "mcore=0.16.1",
        "found: megatron-core 0.16.1 with pipeline_model_parallel_size 3, packing sft",
    ),
    ("KNOWN021", "mlm", "--context-parallel-size 4", "te=1.9", "wanted: NVTE_BATCH_MHA_P2P_COMM=1"),
]
