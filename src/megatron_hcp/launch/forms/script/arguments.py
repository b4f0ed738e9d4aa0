"""The words of a training command, in a form that a rendered job can repeat."""

from __future__ import annotations

from megatron_hcp.bash.reason import ByVariable
from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Unseen, default_of, reason_of
from megatron_hcp.launch.fact import LAUNCH_FOLDER, Argument, RunText


def argv_of(items: Items) -> tuple[Argument, ...] | None:
    """The words; None if one isn't known."""
    words = [_argument(item, before) for before, item in zip((None, *items), items, strict=False)]
    return tuple(word for word in words if word is not None) if None not in words else None


_COUNTS = frozenset(("nnodes", "num_nodes", "n_gpus_per_node", "actor_num_nodes", "actor_num_gpus_per_node"))
"""Options and keys, by their last word, that count nodes or GPUs."""


def counted_by_default(items: Items) -> str:
    """The variable whose default the number of nodes or GPUs is: `trainer.nnodes=${PET_NNODES:-1}`; "" if none."""
    before = ""
    for item in items:
        text = (item.text or "") if isinstance(item, Field) else ""
        key = text.partition("=")[0] if "=" in text else before
        counts = key.lstrip("+-").rpartition(".")[2].replace("-", "_") in _COUNTS
        if counts and isinstance(item, Field) and (variable := default_of(item.parts)):
            return variable
        before = text
    return ""


def why_hidden(items: Items) -> str:
    """Which word isn't known, as far as it is written, and why; "" if all are known."""
    for before, item in zip((None, *items), items, strict=False):
        if _argument(item, before) is None:
            option = before.text if isinstance(before, Field) and (before.text or "").startswith("-") else None
            prefix = item.prefix if isinstance(item, Field) else ""
            named = " ".join(filter(None, (option, prefix)))
            reason = reason_of(item.parts) if isinstance(item, Field) else item.reason
            told = f"{named}...: {reason}" if named else reason
            return ByVariable.of(told, reason.variable, reason.argument) if isinstance(reason, ByVariable) else told
    return ""


def _argument(item: Item, before: Item | None) -> Argument | None:
    """A word, which may contain variables that the job will have; None if it isn't known.

    An unquoted variable may be any number of words, but after an option (`before`) it is meant to be its one value.
    """
    if isinstance(item, Unseen) and item.outside and isinstance(before, Field) and before.prefix.startswith("-"):
        return RunText((item.outside,), (True,))
    if not isinstance(item, Field):
        return None
    if (text := item.text) is not None:
        return text
    parts: list[tuple[str, bool]] = []
    for part in item.parts:
        if isinstance(part, Hole) and (name := part.variable or part.outside or part.date):
            parts.append((name, True))
        elif isinstance(part, Hole) and part.below is not None:
            parts += [
                (LAUNCH_FOLDER, True),
                (f"/{part.below}" if part.below.strip("./") or ".." in part.below else "", False),
            ]
        elif not isinstance(part, Lit):
            return None
        elif parts and not parts[-1][1]:
            parts[-1] = parts[-1][0] + part.text, False
        else:
            parts.append((part.text, False))
    return RunText(tuple(text for text, _ in parts), tuple(name for _, name in parts))
