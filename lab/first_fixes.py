"""Whether the first fixes of generated faults leave a clean launch: `python lab first_fixes`.

A fault is a rule's bad example, or a launch without an error (the rules' good examples, the files of examples/) in
which one or two settings were changed so that an error appears. For each, the first fix of the first error is applied
and the launch is checked again, as a person would, until no error has a fix. Prints how many are then clean,
how many keep an error for which hcp says why it has no fix, and the others one by one; the exit status is 1 if there
is one.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from program import ROOT, at_least_one, parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.fixes import apply_edits, apply_fix
from megatron_hcp.judge.repair.offer import why_none
from megatron_hcp.judge.report import Finding
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Example

FILES = ("bridge_hcp.yaml", "bridge_overrides.txt", "mlm_hcp.sbatch", "verl_dcp.yaml")
CHANGES: Mapping[str, tuple[Any, ...]] = {
    "tp": (3, 5, 6, 16),
    "cp": (3, 4, 5, 6, 7, 12, 64),
    "pp": (2, 3),
    "ep": (3, 4),
    "heads": (12, 30),
    "kv_heads": (3, 6),
    "num_query_groups": (3, 6),
    "seq_length": (1000, 4100, 131071),
    "max_position_embeddings": (1024,),
    "hcp_sizes": (None, (4,), (2, 2), (3, 2), (2, 2, 2), (16, 1), (0, 8), (-2, -2)),
    "cp_comm_type": ("a2a", "p2p", "all_gather", "a2a+p2p", "allgather", "ulysses", ("p2p", "a2a")),
    "window_size": ((128, 0),),
    "softmax_type": ("learnable",),
    "attention_backend": ("local", "unfused", "flash", "fused"),
    "sequence_parallel": (True,),
    "hybrid_context_parallel": (True,),
    "dynamic_context_parallel": (True, False),
    "calculate_per_token_loss": (False,),
    "use_tp_pp_dp_mapping": (True,),
    "num_distributed_optimizer_instances": (3,),
    "fsdp_version": (2,),
    "mtp_layers": (1,),
    "batch_invariant": (True,),
    "deterministic": (True,),
    "nodes": (3, 5),
    "gpus_per_node": (6,),
    "ntasks_per_node": (1, 2),
    "env.CUDA_DEVICE_MAX_CONNECTIONS": ("8",),
    "env.NVTE_FUSED_ATTN": ("0",),
    "env.NCCL_ALGO": ("Tree",),
}
"""What a person gets wrong: values of facts that break some launch."""


class Fault(NamedTuple):
    name: str
    launch: Launch


class Outcome(NamedTuple):
    """Errors that are left, each with hcp's reason ("" = none was given), and how many fixes were applied."""

    left: tuple[tuple[str, str], ...]
    applied: int


def launch_of(example: Example) -> Launch:
    """The launch of a rule's example."""
    assumed = parse_assumptions([example.assume])
    if "\n" in example.text:
        return build_launch(read_text(example.text, "example", dialect=example.dialect), assumed=assumed)
    words = [Word(word) for word in shlex.split(example.text)]
    return build_launch(reading_of_words(example.dialect, words, "-"), assumed=assumed)


def errors_of(launch: Launch, fixes: bool = False) -> list[Finding]:
    return [item for item in check_launch(launch, RULES, fixes=fixes).findings if item.severity == "error"]


def bases() -> Iterator[Fault]:
    """Launches without an error."""
    assume = ("te=2.14 mcore=0.16.1",)
    for name in FILES:
        yield Fault(name, load_launch(str(ROOT / "examples" / name), LoadOptions(assumes=assume)))
    for rule in RULES:
        yield Fault(f"{rule.id} good", launch_of(rule.good))


def faults(limit: int) -> Iterator[Fault]:
    """Every rule's bad example that is an error, then at most `limit` mutations that break something new each."""
    for rule in RULES:
        launch = launch_of(rule.bad)
        if errors_of(launch):
            yield Fault(f"{rule.id} bad", launch)
    seen: set[tuple[str, ...]] = set()
    edits = [{name: value} for name, values in CHANGES.items() for value in values]
    pairs = [{**one, **other} for one, other in itertools.combinations(edits[::3], 2) if one.keys() != other.keys()]
    for base in bases():
        is_file = not base.name.endswith("good")
        for edit in [*edits, *(pairs if is_file else [])]:
            if len(seen) >= limit:
                return
            try:
                changed = apply_edits(base.launch, edit)
            except HcpError:
                continue
            if changed is None:
                continue
            found = tuple(item.rule.id for item in errors_of(changed))
            key = (base.name.split()[0] if is_file else base.launch.dialect, *found)
            if found and key not in seen:
                seen.add(key)
                words = ", ".join(f"{name}={value}" for name, value in edit.items())
                yield Fault(f"{base.name} with {words}", changed)


def after_first_fixes(launch: Launch) -> Outcome:
    """What is left when the first fix of the first error is applied, again and again."""
    tried: set[tuple[str, tuple[str, ...]]] = set()
    applied = 0
    while True:
        errors = errors_of(launch, fixes=True)
        step = next(
            (
                (item, item.fixes[0])
                for item in errors
                if item.role == launch.reading.role
                and item.fixes
                and (item.rule.id, item.fixes[0].overrides) not in tried
            ),
            None,
        )
        if step is None:
            return Outcome(tuple((item.rule.id, reason_of(launch, item)) for item in errors), applied)
        finding, fix = step
        tried.add((finding.rule.id, fix.overrides))
        changed = apply_fix(launch, fix)
        assert changed is not None, f"{finding.rule.id} offers {fix.overrides}, which cannot be applied"
        launch, applied = changed, applied + 1


def reason_of(launch: Launch, finding: Finding) -> str:
    """Why hcp has no fix for the finding; "" if it offers one that has already been tried."""
    return "" if finding.fixes else why_none(launch, finding, lambda _: RULES)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--limit", type=at_least_one, default=400, help="mutations beside the rules' bad examples")
    parser.add_argument("--reasons", action="store_true", help="also list the faults that are explained")
    options = parser.parse_args()
    count: Counter[str] = Counter()
    for fault in faults(options.limit):
        outcome = after_first_fixes(fault.launch)
        kind = "clean" if not outcome.left else "explained" if all(why for _, why in outcome.left) else "neither"
        count[kind] += 1
        count["fixes"] += outcome.applied
        if kind == "neither" or (options.reasons and kind == "explained"):
            told = "; ".join(f"{rule_id}: {why or 'no reason'}" for rule_id, why in outcome.left)
            print(f"{kind}: {fault.name}: {told}")
    total = count["clean"] + count["explained"] + count["neither"]
    print(
        f"{total} faults, {count['fixes']} fixes applied: {count['clean']} clean, {count['explained']} explained, "
        f"{count['neither']} neither"
    )
    return int(count["neither"] > 0)


if __name__ == "__main__":
    sys.exit(main())
