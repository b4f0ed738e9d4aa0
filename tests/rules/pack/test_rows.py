"""PACK rules on the rows that a data set makes."""

from __future__ import annotations

from support.launches import CP, PACKED
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

ON = "model.context_parallel_size=2 "
OFF = "model.context_parallel_size=1 "
PAD = "dataset.offline_packing_specs.pad_seq_to_mult="
SWITCH = "dataset.enable_offline_packing="
ODD = "dataset.offline_packing_specs.packed_sequence_size=4098 "
IN_BATCH = "dataset.enable_in_batch_packing=true train.micro_batch_size="
ENERGON = "dataset.packing_buffer_size=64 train.micro_batch_size=2"

NATIVE = (
    "dataset.packing_buffer_size=64 train.micro_batch_size=1 model.calculate_per_token_loss=true "
    "ddp.average_in_collective=false model.pipeline_model_parallel_size=1"
)

NO_MTP = "bridge=0.7.0 mtp_layers=null"

VERDICTS: list[Row] = [
    # ConfigContainer.validate of Bridge's main (067f987d), `if enable_energon_packing`.
    ("PACK022", "bridge", f"{NATIVE} model.mtp_num_layers=1", "bridge=0.7.0", "error crash config"),
    ("PACK022", "bridge", f"{NATIVE} model.mtp_num_layers=1", "bridge=0.6.0", "fine"),
    ("PACK022", "bridge", f"{NATIVE} model.mtp_num_layers=1", "", "needs bridge"),
    ("PACK022", "bridge", f"{NATIVE} model.mtp_num_layers=null", "bridge=0.7.0", "fine"),
    ("PACK022", "bridge", NATIVE, f"{NO_MTP} pp=2", "error crash config"),
    ("PACK022", "bridge", NATIVE.replace("loss=true", "loss=false"), NO_MTP, "error crash config"),
    ("PACK022", "bridge", NATIVE.replace("collective=false", "collective=true"), NO_MTP, "error crash config"),
    ("PACK022", "bridge", "dataset.pack_sequences_in_batch=true", NO_MTP, "not concerned"),
    # rule, dialect, launch, assumed, verdict
    ("PACK001", "bridge", f"{PACKED}{ON}model.tensor_model_parallel_size=3 model.sequence_parallel=true", "", "error"),
    ("PACK001", "bridge", f"{PACKED}{ON}model.sequence_parallel=false", "", "fine"),
    ("PACK001", "bridge", f"{ODD}{ON}", "", "error crash first-forward"),  # no multiple of 4
    ("PACK001", "bridge-provider", "", "packing=offline packed_sequence_size=4098 cp=2", "error"),
    ("PACK001", "bridge", f"{ODD}{OFF}", "", "not concerned"),
    ("PACK001", "bridge", ODD, "", "needs cp"),
    ("PACK001", "bridge", "", "packing=offline packed_sequence_size=null cp=2", "fine"),  # no length to divide
    ("PACK001", "bridge", "", "packing=in_batch packed_sequence_size=4098 cp=2", "not concerned"),
    ("PACK001", "mlm", f"{CP} 2", "packing=offline packed_sequence_size=4098", "not concerned"),
    ("PACK002", "bridge", f"{PACKED}{ON}", "", "needs pad_seq_to_mult"),
    ("PACK002", "bridge", f"{PACKED}{ON}{PAD}null", "", "error silent never"),
    ("PACK002", "bridge", f"{PACKED}{OFF}{PAD}1", "", "not concerned"),
    ("PACK002", "bridge", "", "packing=in_batch pad_seq_to_mult=1 cp=2", "not concerned"),
    ("PACK002", "mlm", f"{CP} 2", "packing=offline pad_seq_to_mult=1", "not concerned"),
    ("PACK003", "bridge", ENERGON, "", "needs bridge"),
    ("PACK003", "bridge", ENERGON, "bridge=0.6", "fine"),
    ("PACK003", "bridge", ENERGON, "bridge=0.7", "error crash config"),
    ("PACK003", "bridge", f"{IN_BATCH}1", "", "error"),
    ("PACK003", "bridge", f"{IN_BATCH}2", "", "fine"),
    ("PACK003", "bridge", "", "packing=none micro_batch_size=2", "not concerned"),
    ("PACK003", "bridge", "", "packing=offline micro_batch_size=null", "fine"),  # no number to compare
    ("PACK003", "mlm", "--micro-batch-size 2", "packing=offline", "not concerned"),
    ("PACK020", "bridge", f"{SWITCH}true {PACKED}", "", "fine"),
    ("PACK020", "bridge", f"{SWITCH}false {PACKED}", "", "error crash config"),
    ("PACK020", "bridge", PACKED, "", "needs enable_offline_packing"),
    ("PACK020", "bridge", f"{SWITCH}true {PACKED.replace('4096', '0')}", "", "error crash config"),
    ("PACK020", "bridge", f"{SWITCH}true {PACKED.replace('4096', '-1')}", "", "error crash config"),
    ("PACK020", "bridge", f"{SWITCH}true", "", "needs packed_sequence_size"),  # the recipe may have specs
    ("PACK020", "bridge", f"{SWITCH}true dataset.offline_packing_specs=null", "", "error crash config"),
    ("PACK020", "bridge", f"{SWITCH}false", "", "not concerned"),
    ("PACK020", "bridge", PACKED.replace("offline_packing_specs", "packed_sequence_specs"), "", "not concerned"),
    ("PACK020", "bridge-provider", f"{SWITCH}false {PACKED}", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what is said
    ("PACK020", "bridge", f"{SWITCH}true {PACKED.replace('4096', '0')}", "", "found: with packed_sequence_size 0"),
    (
        "PACK020",
        "bridge",
        f"{SWITCH}true dataset.offline_packing_specs=null",
        "",
        "found: without offline_packing_specs",
    ),
    ("PACK002", "bridge", f"{PACKED}{ON}{PAD}null", "", "sequences padded to a multiple of 1 at context_parallel_size"),
    ("PACK002", "bridge", f"{PACKED}{ON}{PAD}2", "", "a multiple of 4 | "),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK003", "bridge", f"{IN_BATCH}1", "", ("train.micro_batch_size=2",)),
    ("PACK020", "bridge", f"{SWITCH}false {PACKED}", "", (f"{SWITCH}true",)),
    (
        "PACK020",
        "bridge",
        f"{SWITCH}true {PACKED.replace('4096', '0')} model.seq_length=8192",
        "",
        (PACKED.replace("4096", "8192").strip(),),
    ),
]
