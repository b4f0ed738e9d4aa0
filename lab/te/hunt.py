"""A search for settings with which context parallelism is silently wrong: `python lab te/hunt --minutes 10`.

Draws settings that Megatron-Core and Transformer Engine take (type of communication, levels, ranks, heads, packing with
drawn lengths, windows, sinks, multi-latent attention, experts, how the loss is averaged) and runs each as
checks/parity.py does, on Transformer Engine's own Python code with stand-ins. A case that differs is shrunk while it
still differs, and run again on the reference attention: where that differs too, the cause is not the attention.

Sorted: same; refused (upstream's words); known (a cause that a rule of ours states); new, by whose it can be. Results
are appended to --out as JSON lines, so that a long run can be stopped at any time.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import runpy
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from program import ROOT, parser_of

from megatron_hcp.core.parity import TinyLaunch
from megatron_hcp.ground.upstream_folder import unpacked
from megatron_hcp.proofs.te_cpu.module import load_with_module

PROGRAM = ROOT / "checks/parity.py"

SIMPLEST: dict[str, Any] = {
    "softmax_type": "vanilla",
    "window": -1,
    "window_skip": None,
    "mla": False,
    "q_lora": False,
    "experts": 0,
    "topk": 0,
    "per_token_loss": True,
    "packed": False,
    "seed": 0,
    "tp": 1,
    "layers": 1,
}
"""Each feature's plain value, the first that is tried while a case is made smaller."""


class Found(NamedTuple):
    """The outcome of a case: `verdict` is same, refused, different or broken; `what` the first difference or error."""

    verdict: str
    what: str


KNOWN = (
    (
        "KNOWN028: with a2a every rank holds the whole gradient of the sinks, and the ranks' sum counts it CP times",
        "softmax_offset",
        lambda case: case.softmax_type == "learnable" and case.comm_type == "a2a",
    ),
    (
        "LOSS001: each CP rank divides by its own count of labels",
        "gradients",
        lambda case: case.packed and not case.per_token_loss,
    ),
)
"""Upstream's faults that a rule states: the rule, what differs, where it applies."""


def drawn(draw: random.Random) -> TinyLaunch:
    """One set of settings; upstream may refuse it."""
    comm = draw.choice(("p2p", "all_gather", "a2a", "a2a+p2p"))
    sizes = draw.choice(([2, 2], [2, 2], [1, 2], [2, 1])) if comm == "a2a+p2p" else None
    cp = sizes[0] * sizes[1] if sizes else draw.choice((2, 3, 4))
    kv_heads = draw.choice((1, cp, 2 * cp))
    mla = draw.random() < 0.2
    heads = kv_heads * draw.choice((1, 2, 4))
    experts = draw.choice((0, 0, 4))
    return TinyLaunch(
        comm_type=comm,
        cp=cp,
        hcp_sizes=sizes,
        tp=2 if cp == 2 and kv_heads % 2 == 0 and not experts and draw.random() < 0.3 else 1,
        heads=heads,
        kv_heads=kv_heads,
        window=draw.choice((-1, -1, 0, 3, 7)),
        window_skip=draw.choice((None, 2)),
        softmax_type=draw.choice(("vanilla", "vanilla", "off-by-one", "learnable")),
        mla=mla,
        q_lora=mla and draw.random() < 0.5,
        packed=draw.random() < 0.5,
        experts=experts,
        topk=min(experts, draw.choice((1, 2))),
        precision="float64",
        per_token_loss=draw.random() < 0.7,
        layers=draw.choice((1, 2)),
        seed=draw.randrange(1, 1000),
    )


def smaller(case: TinyLaunch) -> Iterator[TinyLaunch]:
    """The case with one feature less, most telling first."""
    for name, plain in SIMPLEST.items():
        if getattr(case, name) != plain:
            yield case._replace(**{name: plain})
    if case.cp > 2 and not case.hcp_sizes:
        yield case._replace(cp=2)


def run(case: TinyLaunch, attention: str, timeout_s: float) -> Found:
    """One comparison, in a fork: importing Megatron-Core takes longer than most comparisons."""
    with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
        spec, out = Path(folder, "spec.json"), Path(folder, "out.json")
        spec.write_text(json.dumps(case._asdict()), encoding="utf-8")
        words = ["--spec", str(spec), "--attention", attention, "--steps", "1", "--timeout", f"{timeout_s:g}", "--json"]
        pid = os.fork()
        if pid == 0:
            _become_the_program(words, out)
        os.waitpid(pid, 0)
        text = out.read_text(encoding="utf-8")
    try:
        report = json.loads(text)
    except ValueError:
        return Found("broken", text[-200:] or "no word")
    if report["error"]:
        last = report["error"].splitlines()[-1]
        return Found("refused" if _is_refusal(report["error"]) else "broken", last)
    first = next((result for result in report["results"] if not result["ok"]), None)
    return Found("same", "") if first is None else Found("different", f"{first['name']}: {first['measured']:.1e}")


def _become_the_program(words: list[str], out: Path) -> None:
    """Never returns."""
    with out.open("w", encoding="utf-8") as file, open(os.devnull, "w") as nothing:
        os.dup2(file.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    sys.stdout = os.fdopen(1, "w")
    sys.argv = [str(PROGRAM), *words]
    try:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    except SystemExit:
        pass
    finally:
        sys.stdout.flush()
        os._exit(0)


def _is_refusal(error: str) -> bool:
    """Whether upstream, or this project, explicitly refused this."""
    words = ("AssertionError", "No dot product attention backend", "NotImplementedError", "wanted", "must be")
    return any(word in error for word in words)


def shrunk(case: TinyLaunch, found: Found, timeout_s: float, end: float) -> tuple[TinyLaunch, Found]:
    """The smallest case found that is still different."""
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in smaller(case):
            again = run(candidate, "transformer-engine-cpu", timeout_s)
            if again.verdict == found.verdict:
                case, found, progress = candidate, again, True
                break
    return case, found


def known(case: TinyLaunch, found: Found) -> str | None:
    """The rule that states this cause."""
    return next((rule for rule, what, applies in KNOWN if applies(case) and what in found.what), None)


def whose(case: TinyLaunch, found: Found, timeout_s: float) -> str:
    """Whose fault it may be."""
    if found.what.startswith("RuntimeError: CP 1:"):
        return "new: ours (what is compared with failed)"
    if run(case, "reference", timeout_s).verdict == found.verdict:
        return "new: ours or Megatron-Core's (the reference attention differs too)"
    return "new: the stand-in's or Transformer Engine's (the reference attention is right)"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="of one comparison")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON lines, appended")
    options = parser.parse_args()
    draw, end = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    load_with_module(unpacked("transformer-engine"))
    importlib.import_module("megatron.core.models.gpt")
    while time.monotonic() < end:
        case = drawn(draw)
        found = run(case, "transformer-engine-cpu", options.timeout)
        line: dict[str, Any] = {"case": case._asdict(), "verdict": found.verdict, "what": found.what}
        rule = known(case, found)
        if rule is not None:
            line["whose"] = f"known, {rule}"
        elif found.verdict in ("different", "broken"):
            small, again = shrunk(case, found, options.timeout, end)
            line |= {"smallest": small._asdict(), "what": again.what, "whose": whose(small, again, options.timeout)}
            print(json.dumps({name: line[name] for name in ("whose", "what", "smallest")}), flush=True)
        counts[str(line.get("whose", found.verdict))] += 1
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                print(json.dumps(line), file=file)
    for name, count in counts.most_common():
        print(f"{count:5d} {name}")
    return 1 if any(name.startswith("new") for name in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
