"""A launch as hcp reads it: its topology in one line, then each fact with its value, origin and place."""

from __future__ import annotations

from megatron_hcp.cli.reports.words import fact_value, launch_name, numbered
from megatron_hcp.cli.screen import Line
from megatron_hcp.launch.fact import Launch, shown_value
from megatron_hcp.launch.images import unlisted

_AXES = ("tp", "cp", "pp", "vpp", "ep", "etp", "gtp", "dp")
_ALWAYS = ("tp", "cp", "pp", "dp")
"""The axes that are shown even if their size is 1 or unknown."""


def show_lines(launch: Launch, every: bool) -> list[Line]:
    """The launch; upstream's defaults are only counted, unless `every` fact is to be shown."""
    reading = launch.reading
    lines: list[Line] = [f"{launch_name(launch)}: {reading.dialect} ({reading.form}): {topology(launch)}"]
    rows = [(name, fact) for name, fact in sorted(launch.facts.items()) if every or fact.origin != "default"]
    width = max((len(name) for name, _ in rows), default=0)
    for name, fact in rows:
        place = f"  {fact.location.file}:{fact.location.line}:{fact.location.column}" if fact.location else ""
        key = f"  {fact.key}" if fact.key else ""
        lines.append(f"  {name:<{width}}  {shown_value(fact_value(name, fact))}  [{fact.origin}]{key}{place}")
    if len(rows) < len(launch.facts):
        folded = numbered(len(launch.facts) - len(rows), "further fact")
        lines.append(f"  {folded} at upstream's default; --all lists them")
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(launch.unknown.items()):
        if name not in launch.facts:
            by_reason.setdefault(reason, []).append(name)
    lines += [f"  unknown: {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    if reading.unseen:
        lines.append(f"  unknown: every key that is not written: {reading.unseen}")
    elif not reading.complete:
        lines.append("  unknown: every key that is not written: the recipe decides, and it is not known")
    for name, said, assumed in launch.conflicts:
        values = (shown_value(fact_value(name, fact)) for fact in (said, assumed))
        other = assumed.location.file if assumed.origin == "project" and assumed.location else "--assume"
        lines.append(f"  {name}: the {said.origin} says {next(values)}, {other} says {next(values)}")
    lines += [f"  note: {note}" for note in (*reading.notes, *unlisted(launch.facts))]
    if reading.recipe is not None:
        lines.append(f"  note: [recipe] is {reading.recipe.origin}")
    if any(fact.origin == "model-name" for fact in launch.facts.values()):
        named = shown_value(launch.facts["model_name"].value)
        lines.append(f"  note: [model-name] is what the public model {named} has; --model config.json states your own")
    lines += [f"  also checked: the model under {other.role}" for other in reading.others]
    return lines


def topology(launch: Launch) -> str:
    """How many ranks there are, on which nodes, how they are divided, and the tokens per rank.

    `32 ranks = 4 nodes x 8; tp 2, cp 8 (a2a 4 x p2p 2), pp 1, dp 2; seq 131072; 16384 tokens per rank`
    """
    value = {name: fact.value for name, fact in launch.facts.items()}
    world, nodes, per_node = (value.get(name) for name in ("world_size", "nodes", "gpus_per_node"))
    ranks = numbered(world, "rank") if isinstance(world, int) else "ranks unknown"
    if nodes and per_node:
        ranks += f" = {numbered(nodes, 'node')} x {world // nodes if world and world % nodes == 0 else per_node}"
    if value.get("etp") == value.get("tp"):
        value.pop("etp", None)  # the default
    axes = [_axis(name, value) for name in _AXES if name in _ALWAYS or value.get(name) not in (None, 1)]
    parts = [ranks, ", ".join(axes)]
    length, cp = value.get("seq_length"), value.get("cp")
    if isinstance(length, int):
        parts.append(f"seq {length}")
        if isinstance(cp, int) and cp:
            parts.append(f"{length // cp if length % cp == 0 else f'{length / cp:.1f}'} tokens per rank")
    return "; ".join(parts)


def _axis(name: str, value: dict[str, object]) -> str:
    size = value.get(name)
    text = f"{name} {'?' if size is None else size}"
    if name != "cp":
        return text
    if value.get("dynamic_context_parallel") or value.get("hybrid_context_parallel"):
        return f"{text} (dynamic)"
    if size == 1:
        return text
    kind, sizes = value.get("cp_comm_type"), value.get("hcp_sizes")
    if kind == "a2a+p2p" and isinstance(sizes, tuple) and len(sizes) == 2:
        return f"{text} (a2a {sizes[0]} x p2p {sizes[1]})"
    if isinstance(kind, tuple):
        return f"{text} ({', '.join(dict.fromkeys(map(str, kind)))} by layer)"
    return f"{text} ({kind})" if kind is not None else text
