"""Every launch of an upstream checkout through `hcp check`: `python lab corpus --corpus DIR`.

DIR is a checkout of Megatron-LM, Megatron-Bridge or verl, or any folder with launches. It checks functional-test
configurations (`model_config.yaml`), YAML and shell files that hcp recognises as launches, and Megatron-Bridge's
recipes (see bridge_recipes.py for what is left out of those). Prints the findings by rule and every error with its
file; the exit status is 1 if there is any. What upstream trains works, so an error here is a false alarm of ours or
a bug of theirs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bridge_recipes import recipe_launches
from program import parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.rules.registry import RULES

_ENDINGS = {".sh", ".sbatch", ".slurm", ".yaml", ".yml"}
_LARGEST_BYTES = 1 << 20


def launches(corpus: Path) -> Iterator[tuple[str, Reading | HcpError]]:
    """(name, the launch or why it isn't one) for everything in the corpus that may be a launch."""
    for file in sorted(corpus.rglob("*")):
        relative = file.relative_to(corpus)
        hidden = any(part.startswith(".") for part in relative.parts)
        if hidden or file.suffix not in _ENDINGS or not file.is_file() or file.stat().st_size > _LARGEST_BYTES:
            continue
        try:
            yield str(relative), read_target(str(file))
        except HcpError as error:
            yield str(relative), error
    if (corpus / "src" / "megatron" / "bridge" / "recipes").is_dir():
        yield from recipe_launches(corpus)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE", help="as for hcp check")
    parser.add_argument("--unread", action="store_true", help="also list the files that hold no launch, and why")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        parser.error(f"{options.corpus} is no folder")
    assumed = parse_assumptions(options.assume)
    started = time.perf_counter()
    read = parallel = 0
    kinds: Counter[str] = Counter()
    rules: Counter[tuple[str, str]] = Counter()
    undecided: Counter[str] = Counter()
    errors: list[str] = []
    unread: list[str] = []
    for name, reading in launches(options.corpus):
        if isinstance(reading, HcpError):
            unread.append(f"{name}: {reading}")
            continue
        try:
            launch = build_launch(reading, assumed=assumed)
        except HcpError as error:
            unread.append(f"{name}: {error}")
            continue
        read += 1
        kinds[launch.dialect] += 1
        cp = launch.facts.get("cp")
        parallel += bool(cp and cp.value and cp.value > 1)
        report = check_launch(launch, RULES)
        undecided.update(item.rule.id for item in report.not_checked)
        for finding in report.findings:
            rules[finding.rule.id, finding.severity] += 1
            if finding.severity == "error":
                problem = finding.problem
                errors.append(f"{name}: {finding.rule.id}: {problem.found}; wanted {problem.wanted}")
    seconds = time.perf_counter() - started
    print(
        f"{read} launches ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}), "
        f"{parallel} with context parallelism, in {seconds:.1f} s; {len(unread)} files hold none"
    )
    for (rule_id, severity), count in sorted(rules.items()):
        print(f"{count:6d}  {severity:7s}  {rule_id}")
    print("undecided:", ", ".join(f"{rule_id} {count}" for rule_id, count in undecided.most_common(12)) or "none")
    for line in errors:
        print("error", line)
    if options.unread:
        print(*unread, sep="\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
