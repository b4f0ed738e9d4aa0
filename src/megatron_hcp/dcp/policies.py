"""All policies by name, ours and the published ones, with the same metrics, and a check of plans."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from megatron_hcp.dcp.groups import is_usable
from megatron_hcp.dcp.plan import Group, MicroBatch, Plan, group_time, least_sizes, measure
from megatron_hcp.dcp.published import NO_PACKING, PUBLISHED, published_micro_batches, size_in, static_size
from megatron_hcp.dcp.schedule import OURS, plan_micro_batches
from megatron_hcp.dcp.setup import Setup, check_setup
from megatron_hcp.ground.errors import HcpError


def plan_with(policy: str, lengths: Sequence[int], world_size: int, max_seqlen: int, setup: Setup) -> Plan:
    """The plan of OURS or of one of PUBLISHED, measured by the same setup.

    Raises HcpError as `plan_micro_batches` and `published_micro_batches` do.
    """
    if policy == OURS:
        return plan_micro_batches(lengths, world_size, max_seqlen, **setup._asdict())
    if policy not in PUBLISHED and size_in(policy) is None:
        raise _unknown(policy)
    batches = published_micro_batches(policy, lengths, world_size, max_seqlen, setup.cost)
    return measured_plan(policy, batches, lengths, world_size, max_seqlen, setup)


def measured_plan(
    policy: str, batches: Sequence[MicroBatch], lengths: Sequence[int], world_size: int, max_seqlen: int, setup: Setup
) -> Plan:
    """The plan with its metrics.

    If the policy doesn't pack, a micro-batch in the metrics is a forward pass: each sequence of a group has its own,
    and a micro-batch of the plan lasts as long as its slowest group takes for all of them.
    """
    setup = check_setup(setup, world_size, max_seqlen)
    metrics = measure(batches, lengths, world_size, max_seqlen, setup)
    if policy in NO_PACKING:
        passes = sum(max(len(group.samples) for group in batch.groups) for batch in batches)
        seconds = [max(group_seconds(policy, group, lengths, setup) for group in batch.groups) for batch in batches]
        metrics = metrics._replace(
            num_micro_batches=passes,
            token_fill=metrics.token_fill * len(batches) / passes,
            estimated_s=sum(seconds) + (setup.pp - 1) / setup.vpp * max(seconds),
        )
    return Plan(policy, world_size, max_seqlen, tuple(lengths), tuple(batches), metrics, setup)


def group_seconds(policy: str, group: Group, lengths: Sequence[int], setup: Setup) -> float:
    """Estimated seconds of a group from the start of its micro-batch to its own end."""
    passes = passes_of(policy, group)
    return (
        sum(group_time(one, lengths, setup).seconds for one in passes) + len(passes) * setup.cost.machine.micro_batch_s
    )


def passes_of(policy: str, group: Group) -> list[Group]:
    """The group's forward passes: one with all its sequences, or one for each if the policy doesn't pack."""
    return [group._replace(samples=(i,)) for i in group.samples] if policy in NO_PACKING else [group]


def peak_tokens(plan: Plan) -> float:
    """The maximum number of padded tokens that a rank holds in a forward pass."""
    lengths, setup = plan.lengths, plan.setup
    return max(
        sum(setup.padded(lengths[i], one.local_cp_size) for i in one.samples) / one.local_cp_size
        for batch in plan.micro_batches
        for group in batch.groups
        for one in passes_of(plan.policy, group)
    )


def price_share(plan: Plan) -> float:
    """The price of groups wider than needed (`Cost.comm` for each doubling), as a fraction of total work."""
    lengths, setup = plan.lengths, plan.setup
    least = least_sizes(lengths, setup.sizes(plan.world_size), plan.max_seqlen_per_rank, setup)
    price = sum(
        lengths[i] * max(0.0, log2(group.local_cp_size / least[i]))
        for batch in plan.micro_batches
        for group in batch.groups
        for i in group.samples
    )
    return setup.cost.comm * price / sum(map(setup.cost.work, lengths))


def problems(plan: Plan) -> list[str]:
    """Why the plan can't run as it is: too many tokens on a rank, groups that have no process group."""
    found = []
    peak, most = peak_tokens(plan), plan.max_seqlen_per_rank
    if peak > most:
        found.append(f"a rank holds {ceil(peak)} padded tokens, {ceil(peak) - most} over the limit of {most}")
    target = plan.setup.groups
    odd = [
        (group, number)
        for number, batch in enumerate(plan.micro_batches)
        for group in batch.groups
        if not is_usable(group.start, group.local_cp_size, plan.world_size, target)
    ]
    if odd:
        group, number = odd[0]
        found.append(
            f"groups without a process group (groups={target}): {len(odd)}, the first in micro-batch {number}, "
            f"{group.local_cp_size} ranks from rank {group.start} on"
        )
    return found


def policies_of(text: str, lengths: Sequence[int], world_size: int, max_seqlen: int) -> list[str]:
    """The policies that `dev,static:8` names, in that order; "all" are all.

    With "all", static uses the smallest size that holds the longest sequence, and mcore is omitted: it is main's
    scheduler. Raises HcpError for no name or an unknown one.
    """
    names = [name for name in text.replace(" ", "").split(",") if name]
    if not names:
        raise HcpError(
            "policy: found no name", wanted=f"all, or some of {', '.join(PUBLISHED)}", do="for example static:8"
        )
    if names == ["all"]:
        size = static_size(lengths, world_size, max_seqlen)
        static = [f"static:{size}"] if size is not None else []
        return [name for one in PUBLISHED if one != "mcore" for name in (static if one == "static:C" else [one])]
    for name in names:
        if name == "static:C" or (name not in (OURS, *PUBLISHED) and size_in(name) is None):
            raise _unknown(name)
    return list(dict.fromkeys(names))


def _unknown(policy: str) -> HcpError:
    known = ", ".join((OURS, *PUBLISHED))
    return HcpError(f"policy: found {policy!r:.40}", wanted=f"one of {known}", do="for example static:8")
