"""A small tree of upstream's code: a parser, a validator, a version."""

from __future__ import annotations

from pathlib import Path

ARGUMENTS = """
def add_megatron_arguments(parser):
    group = parser.add_argument_group("all")
    group.add_argument("--micro-batch-size", type=int, default=None)
    group.add_argument("--context-parallel-size", type=int, default=1)
    group.add_argument("--our-own-switch", action="store_true")
    return parser


def validate_args(args, defaults={}):
    if args.our_own_switch:
        assert args.context_parallel_size == 1, "our own switch has no context parallelism"
    return args
"""
INFO = "MAJOR = 0\nMINOR = 21\nPATCH = 0\n"


def small_upstream(folder: Path, arguments: str = ARGUMENTS) -> str:
    """Writes the tree and returns its path."""
    for name, text in {"megatron/core/package_info.py": INFO, "megatron/training/arguments.py": arguments}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return str(folder)
