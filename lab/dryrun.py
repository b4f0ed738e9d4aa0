"""What `hcp dryrun` decides over launches that are known to run: `lab dryrun CHECKOUT … [--every N] [--te VERSION]`.

The launches are the functional tests of the checkout itself, which upstream trains every night: whatever is refused is
a false alarm. Prints, per checkout, how many reach the end of the first backward pass, at which stage the others stop
and what is missing; ends with 1 if one is refused. One launch runs at a time.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path

import yaml

from megatron_hcp.dryrun.ask import Ask, dry_run
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.launch.upstream import upstreams_of

KINDS = ("gpt", "moe", "mixtral", "hybrid")
_OTHER_PROGRAMS = ("inference", "rl", "grpo", "modelopt", "export", "sglang", "swiglu_local_inference")
"""Words in the names of tests that don't train by pretrain_gpt.py or its like."""


def tests_of(checkout: Path) -> list[Path]:
    """The training tests, sorted; those of other programs are left out."""
    found = []
    for kind in KINDS:
        for file in sorted((checkout / "tests/functional_tests/test_cases" / kind).glob("*/model_config.yaml")):
            if not any(word in file.parent.name for word in _OTHER_PROGRAMS) and _trains(file):
                found.append(file)
    return found


def _trains(file: Path) -> bool:
    data = yaml.safe_load(file.read_text())
    return isinstance(data.get("MODEL_ARGS"), dict) and data.get("MODE", "pretraining") == "pretraining"


def run(file: Path, checkout: Path, te: str, ranks: str) -> dict[str, object]:
    """One test: its verdict, the stage, and what is missing or was refused."""
    nodes = re.search(r"_(\d)node", file.parent.name)
    world = 8 * int(nodes[1] if nodes else 1)
    options = LoadOptions(assumes=(f"te={te} world_size={world}",), upstream=upstreams_of([str(checkout)]))
    name = f"{file.parent.parent.name}/{file.parent.name}"
    try:
        (launch,) = load_launches(str(file), options)
        done = dry_run(launch, Ask(ranks=ranks, seconds=180))
    except HcpError as error:
        return {"test": name, "verdict": "unusable", "stage": "-", "why": str(error)}
    worst = next(outcome for outcome in done.outcomes if outcome.verdict == done.verdict)
    error = worst.error or {}
    place = f"{error.get('file')}:{error.get('line')} {error.get('function')}"
    why = error.get("missing") or (f"{error['type']}: {error['message']} ({place})" if error else "")
    cost = {"cpu": sum(one.cpu_seconds for one in done.outcomes), "rss": max(one.rss_mib for one in done.outcomes)}
    return {"test": name, "verdict": done.verdict, "stage": worst.stage, "why": str(why)[:300], "at": place, **cost}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1, help="each N-th test")
    parser.add_argument("--start", type=int, default=0, help="the first test of the sample")
    parser.add_argument("--te", default="2.20", help="the release of Transformer Engine, unpacked in $HCP_UPSTREAM")
    parser.add_argument("--ranks", default="0")
    parser.add_argument("--only", default="", help="tests whose name has this")
    options = parser.parse_args()
    refused = 0
    for checkout in options.checkouts:
        tests = [file for file in tests_of(checkout) if options.only in str(file)][options.start :: options.every]
        rows = []
        for file in tests:
            rows.append(run(file, checkout, options.te, options.ranks))
            print(json.dumps(rows[-1]), flush=True)
        verdicts, stages = (Counter(str(row[name]) for row in rows) for name in ("verdict", "stage"))
        refused += verdicts["refused"]
        print(f"# {checkout.name}: {verdicts['done']} of {len(rows)} done; {dict(verdicts)}; stages {dict(stages)}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
