"""Draws upstream's own refusals, for which a person writes launches: `python lab refusals --from NAME=DIR…`.

Printed are N of the `raise` and `assert` statements that stand in the start-up functions of checkouts, drawn by
`--seed` from all of them: no table of ours is asked. For each that a launch can meet, a person writes the smallest one
that meets it, and only then asks `hcp check`: a refusal counts with upstream's reason alone. The samples, what could
not be met and the answers stand in lab/results/refusals.yaml.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from program import at_least_one, parser_of

_CORE = "megatron/core"
FILES = {
    "megatron-lm": (
        "megatron/training/arguments.py",
        "megatron/training/argument_utils.py",
        f"{_CORE}/num_microbatches_calculator.py",
        f"{_CORE}/parallel_state.py",
        f"{_CORE}/model_parallel_config.py",
        f"{_CORE}/transformer/transformer_config.py",
        f"{_CORE}/transformer/pipeline_parallel_layer_layout.py",
        f"{_CORE}/optimizer/optimizer_config.py",
        f"{_CORE}/distributed/distributed_data_parallel_config.py",
        f"{_CORE}/distributed/distributed_data_parallel.py",
        f"{_CORE}/models/hybrid/hybrid_layer_allocation.py",
        f"{_CORE}/ssm/mamba_hybrid_layer_allocation.py",
    ),
    "megatron-bridge": (
        "src/megatron/bridge/training/config.py",
        "src/megatron/bridge/training/mixed_precision.py",
        "src/megatron/bridge/training/comm_overlap.py",
        "src/megatron/bridge/models/transformer_config.py",
        "src/megatron/bridge/models/gpt_provider.py",
        "src/megatron/bridge/models/mla_provider.py",
        "src/megatron/bridge/models/t5_provider.py",
        "src/megatron/bridge/models/hybrid/hybrid_provider.py",
        "src/megatron/bridge/models/mamba/mamba_provider.py",
    ),
    "verl": ("verl/utils/config.py", "verl/workers/config/*.py"),
    "nemo-rl": (
        "nemo_rl/algorithms/grpo.py",
        "nemo_rl/algorithms/sft.py",
        "nemo_rl/algorithms/dpo.py",
        "nemo_rl/models/policy/lm_policy.py",
        "nemo_rl/models/megatron/setup.py",
        "nemo_rl/models/automodel/setup.py",
    ),
    "slime": ("slime/utils/arguments.py", "slime/backends/megatron_utils/arguments.py"),
    "miles": ("miles/utils/arguments.py", "miles/backends/megatron_utils/arguments.py"),
    "ms-swift": ("swift/megatron/arguments/*.py",),
}
"""The files that hold each project's start-up, relative to its tree."""
START_UP = (
    "validate",
    "__post_init__",
    "finalize",
    "initialize_model_parallel",
    "__init__",
    "setup",
    "from_args",
    "set_default",
    "get_pipeline",
    "parse_",
    "_check",
    "_init_",
    "init_num",
    "_build_num",
    "runtime_config_update",
)
"""Parts of the names of the functions that a start comes through; the others answer questions later."""


class Statement(NamedTuple):
    """One `raise` or `assert`: in which trees it stands, in which function, and its text."""

    upstream: str
    file: str
    function: str
    text: str
    condition: str
    trees: tuple[str, ...]


def statements_in(upstream: str, trees: dict[str, Path]) -> list[Statement]:
    """The refusals of the start-up functions of checkouts of one project, each once, with the trees that have it."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, tree in trees.items():
        for pattern in FILES[upstream]:
            for file in sorted(tree.glob(pattern)):
                place = str(file.relative_to(tree))
                for key in _refusals(ast.parse(file.read_text(encoding="utf-8")), "", ""):
                    found.setdefault((place, *key), []).append(name)
    return [
        Statement(upstream, file, function, text, condition, tuple(dict.fromkeys(names)))
        for (file, function, text, condition), names in found.items()
    ]


def _refusals(node: ast.AST, function: str, condition: str) -> Iterator[tuple[str, str, str]]:
    for child in ast.iter_child_nodes(node):
        inside, asked = function, condition
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inside = f"{function}.{child.name}".lstrip(".")
        if isinstance(child, ast.If):
            asked = ast.unparse(child.test)
        if isinstance(child, ast.Raise) and child.exc is None:
            continue
        is_refusal = isinstance(child, (ast.Raise, ast.Assert))
        if is_refusal and any(part in inside.rpartition(".")[2] for part in START_UP):
            yield inside, " ".join(ast.unparse(child).split()), asked if isinstance(child, ast.Raise) else ""
        yield from _refusals(child, inside, asked)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--draw", type=at_least_one, default=30, metavar="N")
    parser.add_argument("--from", dest="trees", action="append", required=True, metavar="NAME=DIR", help="a checkout")
    parser.add_argument("--upstream", default="megatron-lm", choices=FILES)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    trees = {name: Path(folder) for name, _, folder in (item.partition("=") for item in options.trees)}
    drawn = statements_in(options.upstream, trees)
    random.Random(options.seed).shuffle(drawn)
    for one in drawn[: options.draw]:
        print(f"- {one.file} {one.function} [{' '.join(one.trees)}]\n    {one.condition and 'if ' + one.condition}")
        print(f"    {one.text}")
    print(f"{len(drawn)} statements of {options.upstream}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
