"""What Transformer Engine's context-parallel code holds: `python lab te/held [--release X.Y.Z ...] [--write]`.

Its own Python code runs on gloo processes (proofs.te_cpu) with 2 to 8 ranks in bfloat16, forward and backward, and
every tensor is counted while it lives. Bytes of the rank that holds most, beside what cost/cp_held.py says; both
must be equal. --write renews lab/results/te_held.json. A minute of CPU a release.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from program import ROOT, parser_of
from te_counted import BytesHeld, held_by, tokens_of

from megatron_hcp.core.releases import TE_MLA, TE_MLA_ALL_TYPES, at_least
from megatron_hcp.cost.cp_held import AttentionBytes, held, outputs_kept
from megatron_hcp.ground.upstream_folder import unpacked
from megatron_hcp.proofs.te_cpu.case import HEAD_DIM, AttentionCall

RESULTS = ROOT / "lab/results/te_held.json"
RELEASES = ("2.8.0", "2.14.0", "2.15.0", "2.19.0", "2.20.2")
FLAT = tuple((1, size) for size in range(2, 9))
LEVELS = ((2, 2), (2, 3), (3, 2), (2, 4), (4, 2))
CALLS = [
    (AttentionCall(comm, "bshd", "cuDNN", feature), sizes)
    for comm in ("p2p", "a2a", "a2a+p2p", "all_gather")
    for feature in ("GQA", "MLA heads")
    for sizes in (LEVELS if comm == "a2a+p2p" else FLAT)
]


def bytes_of(call: AttentionCall, size: int) -> AttentionBytes:
    """Bytes of a rank's share of the call's tensors."""
    inputs, tokens = tokens_of(call, size)
    return AttentionBytes(
        2 * tokens * inputs.heads * inputs.head_dim, 2 * tokens * inputs.kv_heads * (inputs.head_dim + HEAD_DIM),
        2 * tokens * inputs.heads * HEAD_DIM, 4 * tokens * inputs.heads,
    )  # fmt: skip


def row(call: tuple[AttentionCall, tuple[int, int]], release: str, found: BytesHeld) -> dict[str, Any]:
    case, sizes = call
    each = bytes_of(case, sizes[0] * sizes[1])
    return {
        "release": release, "cp_comm_type": case.comm, "feature": case.feature, "sizes": list(sizes), "bytes": each,
        **found._asdict(), "formula_kept": sum(each) + each.out * (outputs_kept(case.comm, release) - 1),
        "formula_held": held(each, case.comm, sizes, release),
    }  # fmt: skip


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--release", metavar="X.Y.Z", nargs="+", default=RELEASES, help=f"default: {RELEASES}")
    parser.add_argument("--write", action="store_true", help="rewrite the record")
    options = parser.parse_args()
    rows = []
    for release in options.release:
        calls = [call for call in CALLS if call[0].feature == "GQA" or has_wide_heads(call[0].comm, release)]
        folder = unpacked("transformer-engine", release)
        rows += [row(call, release, found) for call, found in zip(calls, held_by(folder, calls))]
    different = 0
    for found in rows:
        same = found["kept"] == found["formula_kept"]
        same = same and max(found["forward"], found["backward"]) == found["formula_held"]
        different += not same
        print(
            f"{found['release']} {found['cp_comm_type']:10} {found['feature']:9} {found['sizes']} kept {found['kept']} "
            f"({found['formula_kept']:g}), forward {found['forward']}, backward {found['backward']} "
            f"({found['formula_held']:g}){'' if same else '  DIFFERENT'}"
        )
    if options.write:
        lines = ",\n  ".join(json.dumps(found) for found in rows)
        RESULTS.write_text(f'{{"schema": "hcp.te-held/1", "rows": [\n  {lines}]}}\n', encoding="utf-8")
    print(f"{different} of {len(rows)} differ")
    return 1 if different else 0


def has_wide_heads(comm: str, release: str) -> bool:
    """Whether the release has this type for heads whose queries are wider than their values."""
    return at_least(release, TE_MLA_ALL_TYPES if comm in ("a2a", "all_gather") else TE_MLA)


if __name__ == "__main__":
    sys.exit(main())
