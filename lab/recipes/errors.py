"""What `hcp check` says of Megatron-Bridge's recipes: `python lab recipes/errors [--release 0.6.2 BRIDGE LM …]`.

For every release in recipes.txt: how many rules a recipe leaves unchecked where the versions, the GPUs and their
placement are stated (recipes that set the same count once), and its errors. With `--release`, upstream's own code
judges each recipe with an error: the recipe is called in a process of its own (HCP_AGREE_PYTHON: torch, transformers),
its model gets the sizes that we know, and Bridge's validation runs; an error that it does not raise is listed for
review. Exits with 1 where a recipe leaves more than `--most` rules unchecked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from program import ROOT, parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.recipes.table import look_up, names_of, releases
from megatron_hcp.rules.registry import RULES

STATED = "te=2.19.0 arch=sm90 torch=2.9.0 cudnn=9.14.0 flash_attn=2.8.1 gpus_per_node=8 placement=block"
MCORE = {"0.3": "0.16.1", "0.4": "0.17.1", "0.5": "0.18.2", "0.6": "0.19.0", "0.7": "0.20.0"}
"""The megatron-core that a release of Bridge pins, by its first two numbers."""


class Checked(NamedTuple):
    """A recipe's verdict: rules unchecked, and errors as (rule, what was found)."""

    name: str
    world_size: int
    not_checked: int
    needs: tuple[str, ...]
    errors: tuple[tuple[str, str], ...]


def recipes_of(release: str) -> list[str]:
    """One name for each set of settings that a release's recipes have."""
    found: dict[str, str] = {}
    for name in names_of(release):
        recipe = look_up(name, release)
        settings = sorted((setting.key, str(setting.value)) for setting in recipe.settings)
        found.setdefault(json.dumps([settings, sorted(recipe.unknown)]), name)
    return list(found.values())


def check(name: str, release: str) -> Checked | None:
    """The verdict on a recipe on as many GPUs as its name says, or as few as it fits on; None: it is refused."""
    launch = _load(name, release, "")
    if launch is None:
        return None
    told = re.search(r"_(\d+)gpu_", name)
    world_size = int(told[1]) if told else _smallest(launch)
    whole = _load(name, release, f"world_size={world_size} nodes={-(-world_size // 8)}")
    if whole is None:
        return None
    report = check_launch(whole, RULES, fixes=False)
    needs = sorted({need for item in report.not_checked for need in item.needs})
    errors = [(item.rule.id, item.problem.found) for item in report.findings if item.severity == "error"]
    return Checked(name, world_size, len(report.not_checked), tuple(needs), tuple(errors))


def _load(name: str, release: str, more: str) -> Launch | None:
    version = release.partition("+")[0]
    assumes = (f"bridge={version} mcore={MCORE[version[:3]]} {STATED} {more}",)
    try:
        return load_launch("", LoadOptions(recipe=name, assumes=assumes))
    except HcpError as error:
        print(f"  {release} {name}: refused: {error}")
        return None


def _smallest(launch: Launch) -> int:
    """The fewest GPUs, in whole nodes of eight, that the sizes of parallelism multiply to."""
    sizes = {name: fact.value for name, fact in launch.facts.items() if isinstance(fact.value, int)}
    dense = sizes.get("tp", 1) * sizes.get("pp", 1) * sizes.get("cp", 1)
    sparse = (sizes.get("etp") or sizes.get("tp", 1)) * sizes.get("ep", 1) * sizes.get("pp", 1)
    size = dense
    while size % sparse or size % 8:
        size += dense
    return size


def confirm(release: str, bridge: str, megatron_lm: str, found: list[Checked]) -> dict[str, str]:
    """Recipe -> what upstream's own code says of it: its error, `accepted`, or why it could not be called."""
    questions = []
    for each in found:
        sizes = {s.key[6:]: s.value for s in look_up(each.name, release).settings if s.key.startswith("model.")}
        questions.append({"name": each.name, "keys": [], "world_size": each.world_size, "model": sizes})
    command = [os.environ.get("HCP_AGREE_PYTHON", sys.executable)]
    command += [str(ROOT / "lab" / "lib" / "agree" / "upstream" / "recipe_upstream.py"), bridge, megatron_lm]
    text = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) < len(questions):
        sys.exit(f"{release}: upstream answered {len(answers)} of {len(questions)}: {done.stderr[-2000:]}")
    return {each.name: _said(answer) for each, answer in zip(found, answers)}


def _said(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"not called: {answer['error']}"
    return str(answer["refusal"] or "accepted")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--release", nargs=3, action="append", metavar=("RELEASE", "BRIDGE", "MEGATRON_LM"))
    parser.add_argument("--most", type=int, default=3, help="rules that a recipe may leave unchecked")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the findings to this file, as JSON")
    options = parser.parse_args()
    upstream = {release: (bridge, megatron_lm) for release, bridge, megatron_lm in options.release or ()}
    record: dict[str, Any] = {}
    above = 0
    for release in upstream or releases():
        found = [checked for name in recipes_of(release) if (checked := check(name, release)) is not None]
        wrong = [checked for checked in found if checked.errors]
        said = confirm(release, *upstream[release], wrong) if release in upstream else {}
        record[release] = summary(release, found, said, options.most)
        above += record[release]["above"]
    if options.results:
        options.results.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if above else 0


def summary(release: str, found: list[Checked], said: dict[str, str], most: int) -> dict[str, Any]:
    """Prints a release's counts and errors; the same as plain data."""
    counts = Counter(checked.not_checked for checked in found)
    above = [checked for checked in found if checked.not_checked > most]
    print(f"{release}: {len(found)} recipes, unchecked: {dict(sorted(counts.items()))}; above {most}: {len(above)}")
    for checked in above:
        print(f"  {checked.not_checked} unchecked: {checked.name}: needs {', '.join(checked.needs)}")
    errors: dict[str, dict[str, str]] = {}
    for checked in found:
        for rule, text in checked.errors:
            errors.setdefault(rule, {})[checked.name] = said.get(checked.name, text)
    for rule, recipes in sorted(errors.items()):
        by_answer = Counter(re.sub(r"\d+", "N", answer)[:150] for answer in recipes.values())
        for answer, count in by_answer.most_common():
            print(f"  {rule} {count}: {answer}")
    return {"recipes": len(found), "most": max(counts, default=0), "above": len(above), "errors": errors}


if __name__ == "__main__":
    sys.exit(main())
