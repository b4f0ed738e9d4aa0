"""What `hcp dryrun` decides over launches that are known to run: `python lab dryrun CHECKOUT …`, `--good`, `--recipes`.

The launches are the functional tests of each checkout, which upstream trains every night, or with `--good` the rules'
good examples, each completed by the words of a Llama 3 8B: whatever is refused is a false alarm. Prints a line of JSON
for each, and how many reach the end of the first backward pass, at which stage the others stop and what is missing.
Ends with 1 if one is refused. One launch runs at a time; `--every N --start K` takes a sample.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from program import parser_of

from megatron_hcp.dryrun.ask import DryRun, HowToRun, dry_run
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch, load_launches
from megatron_hcp.launch.upstream import upstreams_of, versions_of
from megatron_hcp.rules.registry import RULES

LAB_LIB = Path(__file__).resolve().parent / "lib"
_KINDS = ("gpt", "moe", "mixtral", "hybrid")
_OTHER_PROGRAMS = ("inference", "rl", "grpo", "modelopt", "export")
"""Words in the names of tests that don't train by pretrain_gpt.py or pretrain_hybrid.py."""
BASE = (
    "--use-mcore-models --transformer-impl transformer_engine --num-layers 32 --hidden-size 4096 "
    "--ffn-hidden-size 14336 --num-attention-heads 32 --kv-channels 128 --group-query-attention "
    "--num-query-groups 8 --seq-length 80640 --position-embedding-type rope --rotary-base 500000 --normalization "
    "RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0.0 "
    "--hidden-dropout 0.0 --micro-batch-size 1 --train-iters 100 --eval-interval 100 --save-interval 100 --lr "
    "1e-5 --min-lr 1e-6 --bf16 --use-distributed-optimizer --no-create-attention-mask-in-dataloader"
)
"""Llama 3 8B: what a good example of a few words leaves open. 80,640 tokens divide by most layouts."""
_GQA = "--group-query-attention --num-query-groups 8 "
"""Latent attention has none."""
_VARIABLES = "env.CUDA_DEVICE_MAX_CONNECTIONS=1"


KINDS = {
    "dense": "",
    "pipeline": "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 8",
    "a2a+p2p": "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
    "MLA": "--multi-latent-attention --qk-layernorm --kv-lora-rank 512 --q-lora-rank 1536 --no-rope-fusion",
    "experts": "--num-experts 8 --expert-model-parallel-size 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall",
    "packed": "--sft --no-create-attention-mask-in-dataloader",
    "recompute": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
}
"""What the table of docs/dryrun.md has, each added to the base with CP 2 and TP 2 on 16 ranks."""
_LAYOUT = (
    "--tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 --max-position-embeddings 80640 "
    "--global-batch-size 64"
)


class Case(NamedTuple):
    """A launch, and the facts to run it with: tried in turn until one isn't refused."""

    name: str
    target: str
    words: tuple[str, ...]
    assumes: tuple[str, ...]
    release: str = ""
    """The release of megatron-core that it is about; empty: any."""


def functional_tests(checkout: Path) -> Iterator[Case]:
    """A checkout's training tests. Upstream runs most on 8 GPUs a node, and those with small batches on fewer."""
    active = _active(checkout)
    for kind in _KINDS:
        for file in sorted((checkout / "tests/functional_tests/test_cases" / kind).glob("*/model_config.yaml")):
            name = file.parent.name
            if any(word in name for word in _OTHER_PROGRAMS) or name not in active or not _trains(file):
                continue
            nodes = re.search(r"_(\d)node", name)
            world = 8 * int(nodes[1] if nodes else 1)
            yield Case(f"{kind}/{name}", str(file), (), (f"world_size={world}", ""))


def _active(checkout: Path) -> set[str]:
    """The tests that upstream runs: those of a recipe, without the ones that it marks as broken or disabled."""
    found = set()
    for file in sorted((checkout / "tests/test_utils/recipes").rglob("*.yaml")):
        for product in yaml.safe_load(file.read_text(encoding="utf-8")).get("products", []):
            scopes = [scope for inner in product.get("products", []) for scope in inner.get("scope", [])]
            if any(not re.search("broken|disabled|deprecated", scope) for scope in scopes):
                found |= set(product["test_case"])
    return found


def _trains(file: Path) -> bool:
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    return isinstance(data.get("MODEL_ARGS"), dict) and data.get("MODE", "pretraining") == "pretraining"


def good_examples() -> Iterator[Case]:
    """The good examples of rules about Megatron-LM's command line; a word of the example wins over the base's."""
    for rule in RULES.values() if isinstance(RULES, dict) else RULES:
        example = rule.good
        if example.dialect != "mlm" or "\n" in example.text:
            continue
        own = {word.partition("=")[0] for word in example.text.split() if word.startswith("--")}
        base = " ".join(f"--{option}" for option in BASE[2:].split(" --") if f"--{option.split()[0]}" not in own)
        if "--multi-latent-attention" in own:
            base = base.replace(_GQA, "")
        if own & {"--megatron-fsdp-version", "--use-torch-fsdp2"}:  # it shards the optimizer itself
            base = base.replace("--use-distributed-optimizer", "")
        length = re.search(r"--seq-length (\d+)", f"{base} {example.text}")
        if "--max-position-embeddings" not in own and length:
            base += f" --max-position-embeddings {length[1]}"
        release = re.search(r"\bmcore=(\S+)", example.assume)
        stated = " ".join(word for word in example.assume.split() if not re.match(r"(mcore|te|bridge)\b", word))
        words = (*base.split(), *example.text.split())
        variables = "" if any("fsdp" in option for option in own) else _VARIABLES
        yield Case(rule.id, "", words, (f"{stated} {variables}".strip(),), release[1] if release else "")


def faults(checkouts: list[Path]) -> int:
    """Runs the reported crashes; how many end at upstream's own line, of those whose release is here."""
    trees = {".".join(minor_of(versions_of(upstreams_of([str(path)]))["mcore"].value)): path for path in checkouts}
    found = total = 0
    for line in (LAB_LIB / "dryrun_faults.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, release, te, ranks, words, file, says = (cell.strip() for cell in line.split(" | "))
        if release not in trees:
            continue
        own = {word.lstrip("~") for word in words.split() if word.startswith(("--", "~"))}
        base = " ".join(f"--{one}" for one in f"{BASE} {_LAYOUT}"[2:].split(" --") if f"--{one.split()[0]}" not in own)
        if "--multi-latent-attention" in own:
            base = base.replace(_GQA, "")
        more = tuple(word for word in words.split() if not word.startswith("~"))
        case = Case(name, "", (*base.split(), *more), (f"world_size={ranks} {_VARIABLES}",))
        row = run(case, trees[release], te, HowToRun(ranks="0"))
        is_right = row["verdict"] == "refused" and file in row["at"] and says in row["why"]
        found, total = found + is_right, total + 1
        print(json.dumps({"as_reported": is_right, **row}), flush=True)
    print(f"# {found} of {total} reported crashes stop at upstream's own line")
    return found


def table(checkouts: list[Path], te: str) -> None:
    """Prints, as Markdown, the stage that each kind of launch comes to on each checkout."""
    print(f"| | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for checkout in checkouts:
        cells = []
        for name, words in KINDS.items():
            base = BASE.replace(_GQA, "") if name == "MLA" else BASE
            case = Case(name, "", (*f"{base} {_LAYOUT} {words}".split(),), (f"world_size=16 {_VARIABLES}",))
            row = run(case, checkout, te, HowToRun(ranks="0"))
            cells.append("done" if row["verdict"] == "done" else f"{row['verdict']}: {row['stage']}")
            print(json.dumps(row), file=sys.stderr, flush=True)
        release = versions_of(upstreams_of([str(checkout)]))["mcore"].value
        print(f"| {checkout.name.rpartition('-')[2]} ({release}) | {' | '.join(cells)} |", flush=True)


def minor_of(release: str) -> list[str]:
    return release.split(".")[:2]


def recipes(names: str, checkouts: list[Path], te: str) -> int:
    """Runs recipes of Bridge, NAME:RANKS each; how many are refused. The cache of Hugging Face has their models."""
    rows = []
    for name, _, ranks in (word.partition(":") for word in names.split(",")):
        options = LoadOptions(
            dialect="bridge",
            recipe=name,
            assumes=(f"te={te} world_size={ranks or 8}",),
            upstream=upstreams_of([str(checkout) for checkout in checkouts]),
        )
        try:
            row = _row(name, dry_run(load_launch("", options), HowToRun(ranks="0", seconds=300)))
        except HcpError as error:
            row = {"launch": name, "verdict": "unusable", "stage": "-", "why": str(error)}
        print(json.dumps(row), flush=True)
        rows.append(row["verdict"])
    print(f"# {rows.count('done')} of {len(rows)} done; {dict(Counter(rows))}")
    return rows.count("refused")


def run(case: Case, checkout: Path, te: str, ask: HowToRun) -> dict[str, Any]:
    """What came of one launch."""
    upstream = upstreams_of([str(checkout)])
    row: dict[str, Any] = {}
    for facts in case.assumes:
        options = LoadOptions(words=case.words, assumes=(f"te={te} {facts}".strip(),), upstream=upstream)
        try:
            (launch,) = load_launches(case.target, options)
            row = _row(case.name, dry_run(launch, ask))
        except HcpError as error:
            row = {"launch": case.name, "verdict": "unusable", "stage": "-", "why": str(error)}
        if row["verdict"] != "refused" or row["stage"] not in ("arguments", "groups"):
            return row
    return row


def _row(name: str, done: DryRun) -> dict[str, Any]:
    worst = next(outcome for outcome in done.outcomes if outcome.verdict == done.verdict)
    error = worst.error or {}
    place = f"{error['file']}:{error['line']} {error['function']}" if error else ""
    why = error.get("missing") or (f"{error['type']}: {error['message']}" if error else "")
    cpu, rss = sum(one.cpu_seconds for one in done.outcomes), max(one.rss_mib for one in done.outcomes)
    return {
        "launch": name,
        "verdict": done.verdict,
        "stage": worst.stage,
        "why": str(why)[:400],
        "at": place,
        "cpu_s": round(cpu, 1),
        "rss_mib": rss,
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--good", action="store_true", help="the rules' good examples instead of functional tests")
    parser.add_argument("--faults", action="store_true", help="reported crashes (lib/dryrun_faults.txt)")
    parser.add_argument("--table", action="store_true", help="the table of docs/dryrun.md")
    parser.add_argument(
        "--recipes", default="", metavar="NAME:RANKS,...", help="of Bridge; CHECKOUTS: its own, mcore's"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th launch")
    parser.add_argument("--start", type=int, default=0, metavar="K", help="the first launch of the sample")
    parser.add_argument("--only", default="", metavar="TEXT", help="launches whose name has this")
    parser.add_argument("--te", default="2.20", help="the release of Transformer Engine, unpacked in $HCP_UPSTREAM")
    parser.add_argument("--ranks", default="0", help="as hcp dryrun has it")
    options = parser.parse_args()
    if options.faults:
        faults(options.checkouts)
        return 0
    if options.recipes:
        return int(recipes(options.recipes, options.checkouts, options.te) > 0)
    if options.table:
        table(options.checkouts, options.te)
        return 0
    refused = 0
    for checkout in options.checkouts:
        cases = good_examples() if options.good else functional_tests(checkout)
        release = versions_of(upstreams_of([str(checkout)]))["mcore"].value
        cases = (case for case in cases if not case.release or minor_of(case.release) == minor_of(release))
        sample = [case for case in cases if options.only in case.name][options.start :: options.every]
        rows = []
        for case in sample:
            rows.append(run(case, checkout, options.te, HowToRun(ranks=options.ranks, seconds=180)))
            if options.good and "unrecognized arguments" in rows[-1]["why"]:
                rows[-1]["verdict"] = "of another release"
            print(json.dumps(rows[-1]), flush=True)
        verdicts, stages = (Counter(row[name] for row in rows) for name in ("verdict", "stage"))
        refused += verdicts["refused"]
        print(f"# {checkout.name}: {verdicts['done']} of {len(rows)} done; {dict(verdicts)}; stages {dict(stages)}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
