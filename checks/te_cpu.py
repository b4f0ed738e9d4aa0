"""Transformer Engine's own context-parallel attention on a CPU: right, rejected with a message, or wrong as expected.

The newest wheel unpacked in $HCP_UPSTREAM (or --release) is imported unmodified; its compiled parts have stand-ins
(listed in proofs.te_cpu). Its attention runs on 4 gloo processes, forward and backward, in float64, for every
communication type, layout and kernel. The only silent fault is KNOWN017: packed data gathered for FlashAttention 2.
"""

import argparse
import json
import sys

FEATURES = ("causal", "GQA", "window", "sinks", "no load balance")
KNOWN_WRONG = ("all_gather", "thd", "FlashAttention 2")


def results_of(release):
    from packaging.version import Version

    from megatron_hcp.ground.upstream_folder import unpacked
    from megatron_hcp.proofs.te_cpu.case import every_case
    from megatron_hcp.proofs.te_cpu.execute import run_release

    folder = unpacked("transformer-engine", release)
    has_fault = Version(folder.name.rpartition("-")[2]) >= Version("2.18")
    cases = [case for case in every_case() if case.feature in FEATURES]
    for result in run_release(folder, cases):
        is_fault = has_fault and result.case[:3] == KNOWN_WRONG and result.case.feature in ("causal", "GQA", "window")
        ok = result.verdict == "wrong" if is_fault else result.verdict in ("right", "refused", "not executed")
        yield folder.name, str(result.case), result.verdict, ok, result.not_chosen or result.outcome.text


def main():
    parser = argparse.ArgumentParser(
        prog="te_cpu.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 everything held, 1 something did not, 2 could not run.",
    )
    parser.add_argument("--release", metavar="X.Y.Z", help="default: the newest one unpacked")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args()
    from megatron_hcp.ground.errors import HcpError
    from megatron_hcp.proofs.procs import WorkerFailure

    try:
        rows = list(results_of(options.release))
    except (HcpError, WorkerFailure, ImportError) as error:
        print(f"te_cpu.py: {error}", file=sys.stderr)
        return 2
    name = rows[0][0]
    counts = {verdict: sum(row[2] == verdict for row in rows) for verdict in dict.fromkeys(row[2] for row in rows)}
    ok = all(row[3] for row in rows) and counts.get("right", 0) > 0
    if options.json:
        results = [{"name": f"{case}: {verdict}", "ok": held, "detail": text} for _, case, verdict, held, text in rows]
        print(json.dumps({"schema": "hcp.step/1", "program": "te_cpu", "ok": ok, "release": name, "results": results}))
    else:
        for _, case, verdict, held, text in rows:
            print(f"{'ok  ' if held else 'FAIL'} {case}: {verdict}" + (f" ({text})" if text else ""))
        print(f"{'passed' if ok else 'failed'}: {name} on a CPU: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
