"""Are the facts of recipes.txt what upstream's recipes give? `python lab recipes/agree --release 0.6.2 BRIDGE LM`.

Calls the recipes of each named release for real, in a process of its own with the interpreter in HCP_AGREE_PYTHON
(torch, transformers), and compares every known fact. Exits with 1 if one is wrong. Fields of a model that come from
its Hugging Face config are not compared: the model is a stand-in (see lab/lib/agree/upstream/recipe_upstream.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.recipes.table import look_up, names_of

_KEYS = [*index_of("bridge"), "mixed_precision"]


def compare(release: str, bridge: str, megatron_lm: str, every: int) -> Counter[str]:
    """Counts of facts that are equal, wrong or not compared, and of recipes that could not be called."""
    names = names_of(release)[::every]
    questions = "".join(json.dumps({"name": name, "keys": _KEYS}) + "\n" for name in names)
    python = os.environ.get("HCP_AGREE_PYTHON", sys.executable)
    command = [python, str(ROOT / "lab" / "lib" / "agree" / "upstream" / "recipe_upstream.py"), bridge, megatron_lm]
    done = subprocess.run(command, input=questions, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) < len(names):
        sys.exit(f"{release}: upstream answered {len(answers)} of {len(names)}: {done.stderr[-2000:]}")
    counts: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for name, answer in zip(names, answers):
        if "error" in answer:
            counts["not called"] += 1
            errors[answer["error"]] += 1
            continue
        counts["called"] += 1
        _compare_one(f"{release} {name}", look_up(name, release), answer["facts"], counts)
    print(f"{release}: {dict(counts)}")
    for error, count in errors.most_common(5):
        print(f"  {count} x {error}")
    return counts


def _compare_one(title: str, recipe: Any, real: dict[str, Any], counts: Counter[str]) -> None:
    counts["unknown"] += len(recipe.unknown)
    for setting in recipe.settings:
        key, value = setting.key, setting.value
        if key not in real:
            counts["not compared"] += 1
        elif _same(key, real[key], value):
            counts["equal"] += 1
        else:
            counts["wrong"] += 1
            print(f"  {title}: {key} is {real[key]!r}; recipes.txt says {value!r}")


def _same(key: str, real: Any, ours: Any) -> bool:
    if key.endswith("_target_"):
        return str(real).rpartition(".")[2] == str(ours).rpartition(".")[2]
    return bool(real == ours)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--release", nargs=3, action="append", required=True, metavar=("RELEASE", "BRIDGE", "MEGATRON_LM")
    )
    parser.add_argument("--every", type=int, default=1, help="use one recipe in every N")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the counts to this file, as JSON")
    options = parser.parse_args()
    found = {release[0]: compare(*release, options.every) for release in options.release}
    counts = sum(found.values(), Counter[str]())
    print(f"all: {dict(counts)}")
    if options.results:
        record = json.loads(options.results.read_text()) if options.results.exists() else {}
        for release, each in found.items():
            record.setdefault("compared", {})[release] = {"every": options.every, **dict(sorted(each.items()))}
        options.results.write_text(laid_out(record, ROW_WIDTH) + "\n", encoding="utf-8")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
