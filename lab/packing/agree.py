"""`hcp support` against `hcp check`, on random models, versions and ways: `python lab packing/agree`.

Each draw is asked of `hcp support`, and written as a command line of Megatron-LM that `hcp check` reads. The ids of the
errors must be the same. Exits with 1 if they are not.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from program import at_least_one, parser_of
from support_agrees import Judges, draws


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=at_least_one, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    source, judges = random.Random(arguments.seed), Judges()
    told: Counter[str] = Counter()
    for drawn in draws(source, arguments.draws):
        found = judges.disagreement(drawn)
        told[drawn.family] += found is not None
        if found is not None:
            print(found)
    different = sum(told.values())
    print(f"{arguments.draws:,} launches, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
