"""What Transformer Engine's context-parallel code sends: `python lab te/bytes [--release X.Y.Z] [--write]`.

Its own Python code runs on gloo processes (proofs.te_cpu) with 2 to 8 ranks, and every collective is counted.
Bytes of a rank in bfloat16, forward and backward, beside what cost/cp_cost.py says of the same call; both must be
equal. --write renews lab/results/te_bytes.json. Ten seconds of CPU.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from program import ROOT, parser_of
from te_counted import Sent, sent_by, tokens_of

from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, link_of
from megatron_hcp.ground.upstream_folder import unpacked
from megatron_hcp.proofs.te_cpu.case import HEAD_DIM, AttentionCall

RESULTS = ROOT / "lab/results/te_bytes.json"
BF16 = 2
FLAT = ((2, 1), (3, 1), (4, 1), (6, 1), (8, 1))
LEVELS = ((2, 2), (2, 3), (3, 2), (2, 4), (4, 2))
CALLS = [
    (AttentionCall(comm, "sbhd", "cuDNN", "GQA"), sizes)
    for comm in ("p2p", "all_gather", "a2a", "a2a+p2p")
    for sizes in (LEVELS if comm == "a2a+p2p" else FLAT)
]


def formula(comm: str, sizes: tuple[int, int], tokens: int, heads: int, kv_heads: int) -> float:
    """Bytes by cp_cost's formulas: seconds at one byte per second, where no attention hides anything."""
    link = link_of(bytes_per_token(heads, kv_heads, HEAD_DIM, HEAD_DIM), bandwidth=1.0)
    traffic = CpTraffic(comm, link, link, ranks_per_node=sizes[0] * sizes[1], inner=sizes[0])
    return traffic.exposed_s(sizes[0] * sizes[1], tokens, 0.0, across=False)


def row(call: tuple[AttentionCall, tuple[int, int]], sent: Sent) -> dict[str, Any]:
    case, sizes = call
    inputs, tokens = tokens_of(case, sizes[0] * sizes[1])
    return {
        "cp_comm_type": case.comm,
        "sizes": list(sizes),
        "tokens": tokens,
        "heads": inputs.heads,
        "kv_heads": inputs.kv_heads,
        "head_dim": HEAD_DIM,
        "forward": {name: BF16 * count for name, count in sent.forward.items()},
        "backward": {name: BF16 * count for name, count in sent.backward.items()},
        "formula": formula(case.comm, sizes, tokens, inputs.heads, inputs.kv_heads),
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--release", metavar="X.Y.Z", help="of the unpacked ones (default: the newest)")
    parser.add_argument("--write", action="store_true", help="rewrite the record")
    options = parser.parse_args()
    folder = unpacked("transformer-engine", options.release)
    rows = [row(call, sent) for call, sent in zip(CALLS, sent_by(folder, CALLS))]
    different = 0
    for found in rows:
        total = sum(found["forward"].values()) + sum(found["backward"].values())
        same = abs(total - found["formula"]) <= 1e-9 * total
        different += not same
        print(f"{found['cp_comm_type']:10s} {found['sizes']} {total:8.0f} bytes, formula {found['formula']:8.0f}")
    if options.write:
        lines = ",\n  ".join(json.dumps(found) for found in rows)
        release = folder.name.rpartition("-")[2]
        text = f'{{"schema": "hcp.te-bytes/1", "release": "{release}", "rows": [\n  {lines}]}}\n'
        RESULTS.write_text(text, encoding="utf-8")
    print(f"{different} of {len(rows)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
