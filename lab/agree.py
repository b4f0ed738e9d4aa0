"""Our verdict against upstream's own code: `python lab agree --megatron-lm DIR` (or --megatron-bridge, --verl).

DIR is a checkout. Random launches are made from the options that this revision of upstream has, and judged twice: by
upstream's own start-up, in a process of its own and with stand-ins for what needs GPUs (each is named where it is
made), and by `hcp check` on the same words. It counts launches that both accept or both refuse; false alarms, where
we report an error and upstream accepts; silent rules, where upstream refuses for what one of our rules owns and we
report nothing; and refusals without a rule, by text. The exit status is 1 if there is a false alarm or a silent rule,
or if more than 2 % are refused without a rule, or for what lab/lib/agree/without_rule.yaml does not list.

slime and miles run on a Megatron-LM, and NeMo-RL imports one, which `--on` names.

Megatron-LM needs torch (the CPU build is enough); Megatron-Bridge also hydra-core and transformers, and Megatron-LM at
its 3rdparty/Megatron-LM; verl also hydra-core, ray, tensordict and pandas. HCP_AGREE_PYTHON names an interpreter that
has them. Not part of CI.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from agree import bridge, megatron_lm, nemo_rl, slime, swift, verl
from agree.compare import show, write_results
from agree.parser_words import compare_words
from program import at_least_one, parser_of

UPSTREAMS = {
    "megatron-lm": megatron_lm.compare,
    "megatron-bridge": bridge.compare,
    "verl": verl.compare,
    "ms-swift": swift.compare,
}
"""By option, what compares `--commands` launches with a checkout, from a seed."""
_ON_MEGATRON_LM = {"slime": slime.compare, "miles": slime.compare, "nemo-rl": nemo_rl.compare}


def main() -> int:
    parser = parser_of(__doc__)
    for name in (*UPSTREAMS, *_ON_MEGATRON_LM):
        parser.add_argument(f"--{name}", type=Path, action="append", default=[], metavar="DIR", help="a checkout")
    parser.add_argument("--on", type=Path, metavar="DIR", help="the Megatron-LM of slime, miles and NeMo-RL")
    parser.add_argument("--commands", type=at_least_one, default=2_000, metavar="N", help="launches per checkout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=2, metavar="N", help="launches to show per disagreement")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the counts to this file, as JSON")
    parser.add_argument("--parser", action="store_true", help="only Megatron-LM's parser, over all its options")
    parser.add_argument("--functional-tests", action="store_true", help="only upstream's own functional tests")
    options = parser.parse_args()
    compared = UPSTREAMS | {name: partial(one, megatron_lm=options.on) for name, one in _ON_MEGATRON_LM.items()}
    checkouts = [(name, folder) for name in compared for folder in getattr(options, name.replace("-", "_"))]
    if options.on is None and any(name in _ON_MEGATRON_LM for name, _ in checkouts):
        parser.error("found no --on; wanted the folder of a Megatron-LM")
    if not checkouts:
        parser.error("found no checkout; wanted " + " or ".join(f"--{name} DIR" for name in UPSTREAMS))
    if options.functional_tests:
        tests = [megatron_lm.check_functional_tests(folder) for folder in options.megatron_lm]
        if options.results:
            write_results(options.results, tests)
        return 1 if any(test.false_alarms for test in tests) else 0
    if options.parser:
        agreed = [compare_words(folder, options.commands, options.seed) for folder in options.megatron_lm]
        return 0 if all(agreed) else 1
    results = []
    for name, folder in checkouts:
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
        results.append(compared[name](folder, commands=options.commands, seed=options.seed))
        show(results[-1], options.show)
    if options.results:
        write_results(options.results, results)
    return 0 if all(result.tally.agrees for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
