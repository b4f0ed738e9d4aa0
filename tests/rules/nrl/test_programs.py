"""NRL rules about programs, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_DPO = "dpo.max_num_steps=10"
_PACKED, _SORTED = "policy.sequence_packing.enabled", "policy.dynamic_batching.enabled"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=false {_SORTED}=false", "", "fine"),
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=true {_SORTED}=false", "", "error crash init"),
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=false {_SORTED}=true", "", "error crash init"),
    ("NRL011", "nemo-rl", f"{_PACKED}=true {_SORTED}=false", "", "not concerned"),
    ("NRL011", "nemo-rl", f"{_PACKED}=true {_SORTED}=false", "script=examples/run_dpo.py", "error crash init"),
    ("NRL011", "nemo-rl", f"{_PACKED}=true {_SORTED}=false", "script=examples/run_sft.py", "not concerned"),
    ("NRL011", "mlm", "", "script=run_dpo.py", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=true {_SORTED}=true", "", f"found: {_PACKED} and {_SORTED}"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=true {_SORTED}=true", "", (f"{_PACKED}=false {_SORTED}=false",)),
    ("NRL011", "nemo-rl", f"{_DPO} {_PACKED}=true {_SORTED}=false", "", (f"{_PACKED}=false",)),
]
