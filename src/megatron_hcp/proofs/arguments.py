"""Arguments that several programs in checks/ take: --attention, --te and --sizes."""

from __future__ import annotations

import argparse
from typing import Any

REFERENCE, TE_CPU, TE = "reference", "transformer-engine-cpu", "transformer-engine"


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Adds --attention (which attention class a program uses, and so whether it runs on CPU or GPUs) and --te."""
    parser.add_argument(
        "--attention",
        choices=(REFERENCE, TE_CPU, TE),
        default=REFERENCE,
        help="whose attention class: ours on the CPU (default); Transformer Engine's Python code on the CPU, from an "
        "unpacked wheel; or the installed Transformer Engine's on GPUs",
    )
    parser.add_argument("--te", metavar="X.Y.Z", help="the wheel of transformer-engine-cpu (default: the newest)")


def is_on_cpu(options: argparse.Namespace) -> bool:
    """Whether a program with these options runs on the CPU; one without --attention always does."""
    attention: str = getattr(options, "attention", REFERENCE)
    return attention != TE


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Adds --sizes, a list of (inner, outer) pairs that all have the same product."""
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_sizes,
        action=_SameProduct,
        default=[(2, 2)],
        metavar="INNER,OUTER",
        help="the levels of a2a+p2p (default: 2,2); several with one product run one after another",
    )


def _sizes(text: str) -> tuple[int, int]:
    try:
        inner, outer = map(int, text.split(","))
    except ValueError:
        inner = outer = 0
    if min(inner, outer) < 1:
        raise argparse.ArgumentTypeError(f"{text}: wanted INNER,OUTER, for example 2,2")
    return inner, outer


class _SameProduct(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        products = sorted({inner * outer for inner, outer in values})
        if len(products) > 1:
            parser.error(f"{option} with the products {products}: wanted one product, the number of CP ranks")
        setattr(namespace, self.dest, values)
