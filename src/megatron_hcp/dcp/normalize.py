r"""Loss multipliers under dynamic context parallelism: the factor that makes the step equal to a single-process one.

W ranks of DPxCP; micro-batch m has groups g of C_g ranks; N_g(theta) is the masked loss *sum* of group g's tokens, and
T the number of loss tokens of the whole mini-batch, counted once. The step should be that of sum_g N_g / T. Each rank
back-propagates l = mu * N_g / T (its own group's value), gradients add up over the micro-batches, and DDP takes their
mean or sum over the W ranks. What mu must be follows from what the ranks of one group back-propagate together:

* **detached**: log-probabilities x_1 ... x_C are computed on C ranks; each rank gathers all of them, detached, and puts
  its own shard back (verl's `postprocess_thd_engine`). Rank c then injects dN/dx_c only. Context parallelism passes
  gradients of keys and values to their owners, so the ranks' gradients add up to
  sum_c (dN/dx_c) (dx_c/dtheta) = grad N_g: *once*, for any loss, token mean or not.
* **autograd**: an all-gather with a backward pass (`torch.distributed.nn.functional.all_gather`) adds the cotangents of
  all C ranks, so each injects C * dN/dx_c and the group yields C * grad N_g.
* **replicated**: each rank runs the whole sub-batch without sharding (the unit test of verl pull request #5869):
  C * grad N_g again.

With k = 1 (detached) or C_g (autograd, replicated), DDP's mean gives (1/W) sum_m sum_g mu k grad N_g / T, and its sum
the same without 1/W. Either equals sum grad N_g / T for every choice of groups and micro-batches if and only if

    mu = W / k  (mean)          mu = 1 / k  (sum).

So in the detached mode mu = W whatever C_g is; W / C_g, which verl pull request #5869 uses, is off by 1 / C_g per
micro-batch: a wrong scale where all C_g are equal, a wrong *direction* where they differ.

The *value* is another matter: all C_g ranks of a group hold the same N_g in every mode, so a mean over the W ranks of
nu * N_g / T, summed over the micro-batches, is the loss if nu = W / C_g; a sum over ranks needs nu = 1 / C_g. In the
detached mode one factor cannot serve both.

**Per-token loss** (Megatron-Core with calculate_per_token_loss: DDP sums, and `finalize_model_grads` divides by the sum
over ranks and micro-batches of a token count that each forward step returns). verl returns (mu N_g / T * R, r, report):
r counts the real tokens (not padding) on this rank, so that all r add up to R, the real tokens of the mini-batch
counted once; the division undoes R, and mu is that of DDP's sum. Megatron-Core's own loss returns the rank's local
masked sum and its local count of loss tokens: shards are disjoint, nothing is gathered, and the multiplier is 1.

**Megatron-Core's own factors.** All of the above is of the value that is back-propagated. Between what a loss function
returns and that value stands `forward_step_calc_loss`, which looks at how many things were returned, and knows the
static context_parallel_size alone:

* (loss, report): loss * cp / n, n the number of micro-batches, with and without calculate_per_token_loss. So a loss
  function returns mu * n / cp: W * n / cp = DP * n for the mean in the detached mode. Where static CP is 1 and the
  loss already multiplied by n, as in verl, that is mu.
* (loss, tokens, report) with calculate_per_token_loss: unchanged, see above.
* (loss, tokens, report) without it: loss / max(tokens, 1) / n: the mean of the means of ranks, which no multiplier
  makes the step of one process where their numbers of tokens differ.

Source: megatron/core/pipeline_parallel/schedules.py, forward_step_calc_loss (0.16.1, main, dev).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from megatron_hcp.dcp.lengths import MOST_RANKS, check_positive
from megatron_hcp.dcp.rows import DEFAULT_SETUP, local_runs
from megatron_hcp.dcp.setup import Setup
from megatron_hcp.ground.errors import HcpError

REDUCTIONS = ("mean", "sum")
"""Whether DDP divides the summed gradients of the W ranks by W (calculate_per_token_loss off) or not."""
GATHERS = ("detached", "autograd", "replicated")
"""How the ranks of a group obtain all its log-probabilities (see the module docstring)."""


class Weights(NamedTuple):
    """Exact multipliers of N_g / T for one rank of a group of `local_cp_size`."""

    local_cp_size: int
    backward: Fraction
    """mu: for the value that is back-propagated, or that a loss function returns if the framework multiplies it."""
    report_mean: Fraction
    """nu: for the logged value, if logging averages over the W ranks (whatever DDP does)."""
    report_sum: Fraction
    """nu, if logging sums over the W ranks; equivalent to 1 on one rank of each group and 0 on the others."""
    per_token: Fraction
    """mu of the first element of verl's per-token tuple, still to be multiplied by R; there DDP always sums."""


def megatron_factor(context_parallel_size: int, num_micro_batches: int) -> Fraction:
    """The factor by which megatron-core multiplies the loss of a (loss, report) before backpropagation.

    >>> megatron_factor(4, 6)
    Fraction(2, 3)

    Source: megatron/core/pipeline_parallel/schedules.py, forward_step_calc_loss.
    """
    check_positive("context_parallel_size", context_parallel_size)
    check_positive("num_micro_batches", num_micro_batches)
    return Fraction(context_parallel_size, num_micro_batches)


def loss_weights(
    world_size: int,
    group_sizes: Sequence[int],
    *,
    reduction: str = "mean",
    gather: str = "detached",
    applied: Fraction = Fraction(1),
) -> tuple[Weights, ...]:
    """The multipliers for each group of one micro-batch; `group_sizes` are the C_g, and add up to W.

    Weights depend only on W and a group's own C_g: other groups and other micro-batches don't matter. `applied` is what
    the framework multiplies a returned loss by (`megatron_factor`); `backward` is divided by it.

    >>> [(w.local_cp_size, int(w.backward), int(w.report_mean)) for w in loss_weights(4, [2, 1, 1])]
    [(2, 4, 2), (1, 4, 4), (1, 4, 4)]
    >>> [str(w.backward) for w in loss_weights(8, [4, 4], gather="replicated")]
    ['2', '2']
    >>> [str(w.backward) for w in loss_weights(8, [4, 4], applied=megatron_factor(4, 6))]
    ['12', '12']

    Raises HcpError if the sizes do not add up to W, or a name is unknown.
    """
    check_positive("world_size", world_size, MOST_RANKS)
    if reduction not in REDUCTIONS:
        raise HcpError(f"reduction: found {reduction!r}", wanted=f"one of {', '.join(REDUCTIONS)}")
    if gather not in GATHERS:
        raise HcpError(f"gather: found {gather!r}", wanted=f"one of {', '.join(GATHERS)}")
    for size in group_sizes:
        check_positive("group size", size)
    if sum(group_sizes) != world_size:
        raise HcpError(
            f"group sizes: found {sum(group_sizes)} ranks together", wanted=f"all {world_size} of world_size"
        )
    ranks = world_size if reduction == "mean" else 1
    weights = []
    for size in group_sizes:
        copies = 1 if gather == "detached" else size
        report = Fraction(world_size, size), Fraction(1, size)
        weights.append(Weights(size, Fraction(ranks, copies) / applied, *report, Fraction(1, copies)))
    return tuple(weights)


def real_tokens_of_rank(lengths: Sequence[int], local_cp_size: int, cp_rank: int, setup: Setup = DEFAULT_SETUP) -> int:
    """Tokens other than padding on one rank of a group: r of the per-token tuple.

    Over the ranks of the group they add up to the sum of the lengths.

    >>> [real_tokens_of_rank([10, 3], 2, rank) for rank in range(2)]
    [5, 8]
    """
    return sum(tokens for tokens, _ in local_runs(lengths, local_cp_size, cp_rank, setup))
