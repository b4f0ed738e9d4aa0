"""What hcp reads in the launches of NeMo-RL, ms-swift, slime and miles, and what it leaves open.

    python lab frameworks --corpus DIR --assume te=2.18 mcore=0.18.0 bridge=0.5.0
    python lab frameworks --corpus DIR --loader PYTHON    (a Python with omegaconf and hydra-core, for NeMo-RL)
    python lab frameworks --corpus DIR --parser PYTHON --megatron-lm DIR [--write]    (the other three)

DIR is a checkout of one of them. Each launch of its dialect is read and checked; printed are the rules left unchecked
per complete launch, the findings, and why launches are not complete. With `--loader`, NeMo-RL's own loader
(nemo_rl/utils/config.py) builds each configuration in a process of its own, and every setting below `policy` and
`cluster` is compared. With `--parser` (torch, megatron-core and transformers), bash runs each script in the sandbox
of lab/scripts.py, the framework's own parser gets the words, and its value of every option that hcp reads is compared
(lab/lib/agree/framework_parsers.py); `--write` keeps the counts in lab/results/frameworks.json. The exit status is
1 if a setting differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agree.framework_parsers import compare_parser
from agree.process import PYTHON, commit_of
from program import ROOT, parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.json_layout import laid_out
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Beside, Reading
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import RULES

RESULTS = ROOT / "lab" / "results" / "frameworks.json"
DIALECTS = ("nemo-rl", "ms-swift", "slime")
LOADER = """
import importlib.util, json, sys
from omegaconf import OmegaConf
spec = importlib.util.spec_from_file_location("config", sys.argv[1])
config = importlib.util.module_from_spec(spec)
spec.loader.exec_module(config)
getattr(config, "register_omegaconf_resolvers", lambda: None)()
def leaves(node, key):
    if OmegaConf.is_dict(node) and len(node):
        for name in node:
            if OmegaConf.is_missing(node, name):
                continue
            try:
                child = node[name]
            except Exception:
                continue
            yield from leaves(child, f"{key}.{name}" if key else str(name))
    else:
        yield key, OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
for line in sys.stdin:
    try:
        found = dict(leaves(config.load_config(line.strip()), ""))
    except Exception as error:
        found = {"": str(error)[:200]}
    print(json.dumps(found, default=str), flush=True)
"""


def launches(corpus: Path, sources: tuple[str, ...]) -> Iterator[tuple[Path, Reading]]:
    """The launches of the four frameworks."""
    for path in sorted(path for path in corpus.rglob("*") if path.suffix in (".sh", ".yaml", ".yml")):
        try:
            reading = read_text(path.read_text(encoding="utf-8"), str(path), beside=Beside(str(path.parent), sources))
        except (HcpError, UnicodeDecodeError):
            continue
        if reading.dialect in DIALECTS:
            yield path, reading


def differences(reading: Reading, loaded: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    """Settings below `policy` and `cluster` that the loader builds differently; `counts` gets all of them."""
    ours = {setting.key: setting.value for setting in reading.settings}
    for key, value in loaded.items():
        if not key.startswith(("policy.", "cluster.")) or value == {}:
            continue
        off = key.startswith(("policy.megatron_cfg.", "policy.draft.")) and key not in ours
        if key in reading.unknown:
            counts["unknown"] += 1
        elif off and (_is_off(key, loaded) or reading.facts["strategy"].value != "megatron"):
            counts["switched off"] += 1
        elif key in ours and _same(ours[key], value):
            counts["equal"] += 1
        else:
            counts["different"] += 1
            yield f"{key}: {value!r} there, {ours.get(key, 'absent')!r} here"


def _same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal; OmegaConf reads `1e-8` as a number, plain YAML 1.1 as text."""
    return bool(ours == theirs or (isinstance(theirs, float) and isinstance(ours, str) and float(ours) == theirs))


def _is_off(key: str, loaded: dict[str, Any]) -> bool:
    section = "policy.megatron_cfg.fp8_cfg."
    return key.startswith(section) and loaded.get(f"{section}enabled") is not True


def loaded_by_framework(python: str, config: Path, paths: list[Path]) -> list[dict[str, Any]]:
    """What NeMo-RL's loader builds from each file, as dotted keys."""
    lines = "\n".join(str(path.resolve()) for path in paths)
    done = subprocess.run([python, "-c", LOADER, str(config)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(found: list[tuple[Path, Reading]], python: str, config: Path) -> int:
    """Prints how many settings agree; returns how many do not."""
    whole = [(path, reading) for path, reading in found if reading.form == "yaml" and reading.unseen is None]
    counts: Counter[str] = Counter()
    for (path, reading), loaded in zip(
        whole, loaded_by_framework(python, config, [path for path, _ in whole]), strict=True
    ):
        if "" in loaded:
            counts["files that the loader refuses"] += 1
            continue
        counts["files"] += 1
        for line in differences(reading, loaded, counts):
            print(f"different {path.name}: {line}")
    print("compared with the framework's loader:", ", ".join(f"{count} {name}" for name, count in counts.items()))
    return counts["different"]


def parsed(options: argparse.Namespace) -> int:
    """Compares with the framework's parser, prints the differences and counts; 1 if there is a difference."""
    os.environ[PYTHON] = options.parser
    counts, lines = compare_parser(options.corpus, options.megatron_lm)
    print(*lines, sep="\n")
    print(f"{options.corpus.name}:", ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    if options.write:
        kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        commit = options.commit or commit_of(options.corpus)
        kept[options.corpus.name.rpartition("+")[2]] = {"commit": commit, **dict(sorted(counts.items()))}
        RESULTS.write_text(laid_out(dict(sorted(kept.items()))) + "\n", encoding="utf-8")
    return int(bool(counts["different"] or not counts["equal"]))


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--source", action="append", default=[], metavar="DIR", help="where files named elsewhere are")
    parser.add_argument("--assume", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--most", type=int, default=5, help="rules that a launch may leave unchecked without a line")
    parser.add_argument("--loader", metavar="PYTHON", help="a Python that can run NeMo-RL's loader")
    parser.add_argument("--parser", metavar="PYTHON", help="a Python that can run the parser of the framework")
    parser.add_argument("--megatron-lm", type=Path, metavar="DIR", help="a checkout, for slime and miles")
    parser.add_argument("--commit", help="of the checkout, where it has no .git")
    parser.add_argument("--write", action="store_true", help=f"keep what --parser counts in {RESULTS.name}")
    options = parser.parse_args()
    if options.parser:
        return parsed(options)
    assumed = parse_assumptions(options.assume)
    found = list(launches(options.corpus, tuple(options.source)))
    open_rules: list[tuple[int, Path, str]] = []
    needs: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    rules: Counter[tuple[str, str]] = Counter()
    errors: list[str] = []
    for path, reading in found:
        try:
            report = check_launch(build_launch(reading, assumed=assumed), RULES, fixes=False)
        except HcpError as error:
            errors.append(str(error))
            continue
        if reading.unseen is None:
            needed = [name for item in report.not_checked for name in item.needs]
            open_rules.append((len(report.not_checked), path, ", ".join(sorted(set(needed)))))
            needs.update(needed)
        else:
            reasons[reading.unseen[:70]] += 1
        for item in report.findings:
            rules[item.rule.id, item.severity] += 1
            if item.severity == "error":
                errors.append(f"{path.relative_to(options.corpus)}: {item.rule.id}: {item.problem.found}")
    dialects = Counter(reading.dialect for _, reading in found)
    print(f"{len(found)} launches ({', '.join(f'{count} {name}' for name, count in sorted(dialects.items()))})")
    if open_rules:
        counts = [count for count, _, _ in open_rules]
        over = [one for one in open_rules if one[0] > options.most]
        mean = sum(counts) / len(counts)
        print(f"{len(counts)} complete: {mean:.1f} rules unchecked each, at most {max(counts)}; ", end="")
        print(f"{len(over)} over {options.most}")
        for count, path, needed_here in over:
            print(f"  {count} unchecked: {path.relative_to(options.corpus)}: needs {needed_here}")
    print("needed:", ", ".join(f"{name} {count}" for name, count in needs.most_common(8)) or "nothing")
    for reason, count in reasons.most_common(5):
        print(f"{count:6d} not complete: {reason}")
    for (rule_id, severity), count in sorted(rules.items()):
        print(f"{count:6d}  {severity:7s}  {rule_id}")
    print(*(f"error {line}" for line in errors), sep="\n")
    roots = (options.corpus, options.corpus.parent)
    config = next((root / "nemo_rl/utils/config.py" for root in roots if (root / "nemo_rl").is_dir()), options.corpus)
    return int(bool(options.loader and compare(found, options.loader, config)))


if __name__ == "__main__":
    sys.exit(main())
