"""Collects the cases of CP-Bench: `python lab cpbench_cases FOLDER CHECKOUT…`.

CHECKOUT is a checkout of Megatron-LM, Megatron-Bridge, verl, NeMo-RL, slime, miles or ms-swift, of any release. What
it publishes as working goes into FOLDER/green.jsonl: example scripts, functional tests, recipes and the training
commands of Bridge's model verification cards, with the version that the tree states. With `--mutants N`, N single
changes of Megatron-LM's launches that its own start-up refuses go into FOLDER/mutants.jsonl (torch is needed, as for
`lab agree`); with `--reported CASES.jsonl`, publicly reported faults into FOLDER/reported.jsonl. FOLDER is the user's:
it holds upstream's text, which is not ours to keep here. `python lab cpbench` scores a tool on these files.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from cpbench.case import write_cases
from cpbench.mutants import mutants_of
from cpbench.published import cases_of
from cpbench.reports import cases_of_reports
from program import parser_of


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("checkouts", type=Path, nargs="*", metavar="CHECKOUT")
    parser.add_argument("--mutants", type=int, default=0, metavar="N", help="per checkout of Megatron-LM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reported", type=Path, action="append", default=[], metavar="CASES.jsonl")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.checkouts:
        try:
            green = [case for checkout in options.checkouts for case in cases_of(checkout.resolve())]
        except ValueError as error:
            parser.error(str(error))
        write_cases(options.folder / "green.jsonl", green)
        counts = Counter(case.source.partition(" ")[0] for case in green)
        cards = sum(case.id.startswith("card:") for case in green)
        print(f"green.jsonl: {len(green)}, {cards} of them card commands:", dict(sorted(counts.items())))
    if options.mutants:
        lm = [checkout for checkout in options.checkouts if (checkout / "megatron/core/package_info.py").is_file()]
        red = [case for checkout in lm for case in mutants_of(checkout.resolve(), options.mutants, options.seed)]
        print(f"mutants.jsonl: {write_cases(options.folder / 'mutants.jsonl', red)}")
    if options.reported:
        reported = [case for file in options.reported for case in cases_of_reports(file)]
        print(f"reported.jsonl: {write_cases(options.folder / 'reported.jsonl', reported)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
