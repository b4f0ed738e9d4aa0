"""How far launches of slime, verl, ms-swift and NeMo-RL come: `python lab dryrun_frameworks TREE… --launches FILE…`.

The launches are the frameworks' own examples, which their authors run: whatever is refused is a false alarm, or an
example that doesn't fit the trees. TREE is as `--upstream` has it: the framework's checkout, that of Megatron-LM, and
Transformer Engine's release is `--te`. Which trees fit a release, it says itself: slime in docker/Dockerfile
(`MEGATRON_COMMIT`, and a patch), verl in setup.py and docker/; until 0.8 it takes names of transformers that 5 has not.
Prints a line of JSON for each and how many are done. One runs at a time.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from program import parser_of

from megatron_hcp.dryrun.ask import HowToRun, dry_run
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.launch.upstream import upstreams_of


def printed(script: Path) -> tuple[str, ...]:
    """The words of slime's model scripts that printf makes, which hcp doesn't run: the layers that have experts."""
    for named in re.findall(r"models/([\w.-]+\.sh)", script.read_text(encoding="utf-8")):
        file = next((up / "scripts/models" / named for up in script.parents if (up / "scripts/models").is_dir()), None)
        text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
        layers, dense = re.search(r"^N_?LAYERS=\D*(\d+)", text, re.M), re.search(r"^\w*DENSE\w*=(\d+)", text, re.M)
        if layers and "MOE_LAYER_FREQ" in text:
            first = int(dense[1]) if dense else 0
            return ("--moe-layer-freq", f"[{','.join(['0'] * first + ['1'] * (int(layers[1]) - first))}]")
    return ()


def run(file: Path, trees: list[str], te: str, facts: str) -> dict[str, Any]:
    """What came of the first launch in the file."""
    words = printed(file) if file.suffix == ".sh" else ()
    row = {"launch": file.name, "verdict": "unusable", "stage": "-"}
    for more in ("", " world_size=8"):
        options = LoadOptions(words=words, assumes=(f"te={te}{more} {facts}".strip(),), upstream=upstreams_of(trees))
        try:
            launch = next(iter(load_launches(str(file), options)))
            if not more and launch.facts.get("world_size") is None:
                continue
            done = dry_run(launch, HowToRun(ranks="0", seconds=300))
        except HcpError as error:
            return {**row, "why": str(error)[:300]}
        (one,) = done.outcomes
        told, why, place = one.error, "", ""
        if told:
            why = told["missing"] or f"{told['type']}: {told['message']}"
            place = f"{told['file']}:{told['line']} {told['function']}"
        return {**row, "verdict": done.verdict, "stage": one.stage, "why": why[:300], "at": place,
                "cpu_s": one.cpu_seconds, "rss_mib": one.rss_mib}  # fmt: skip
    return {**row, "why": "the number of ranks"}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("trees", nargs="+", metavar="TREE", help="as --upstream has it")
    parser.add_argument("--launches", nargs="+", type=Path, required=True)
    parser.add_argument("--te", default="2.14", help="the release of Transformer Engine, unpacked in $HCP_UPSTREAM")
    parser.add_argument("--assume", default="", help="facts of every launch")
    parser.add_argument("--packages", default="", help="a folder with other releases of packages: transformers 4")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.path.abspath(options.packages) if options.packages else ""
    rows = []
    for file in options.launches:
        rows.append(run(file, options.trees, options.te, options.assume))
        print(json.dumps(rows[-1]), flush=True)
    verdicts = Counter(row["verdict"] for row in rows)
    print(
        f"# {verdicts['done']} of {len(rows)} done; {dict(verdicts)}; stages {dict(Counter(r['stage'] for r in rows))}"
    )
    return int(verdicts["refused"] > 0)


if __name__ == "__main__":
    sys.exit(main())
