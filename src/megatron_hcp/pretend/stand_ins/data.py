"""Few samples, in process, of upstream's own mock data; and its compiled index helpers, where a checkout has none."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np

STANDS_FOR = "the length of training (two iterations are sampled), data workers, the compiled helpers of a checkout"
CANNOT_TELL = "what the launch's own data holds"

_HELPERS = "megatron.core.datasets.helpers_cpp"
_FEW = {"train_iters": 2, "train_samples": None, "eval_iters": 1, "num_workers": 0, "exit_interval": None}


def build_sample_idx(
    sizes: Any,
    document_idx: Any,
    seq_length: int,
    num_epochs: int,
    tokens_per_epoch: int,
    drop_last_partial_sequence: bool = True,
    add_extra_token_to_sequence: int = 1,
) -> Any:
    """[samples + 1, 2]: the document, and the offset in it, at which each sample starts."""
    tokens = num_epochs * tokens_per_epoch - add_extra_token_to_sequence
    samples = tokens // seq_length if drop_last_partial_sequence else -(-tokens // seq_length)
    ends = np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64)[np.asarray(document_idx)])))
    starts = np.minimum(np.arange(samples + 1, dtype=np.int64) * seq_length, ends[-1] - 1)
    document = np.searchsorted(ends, starts, side="right") - 1
    return np.stack((document, starts - ends[document]), axis=1).astype(np.int32)


def build_blending_indices(dataset_index: Any, dataset_sample_index: Any, weights: Any, num: int, size: int,
                           verbose: bool) -> None:  # fmt: skip
    """Fills the two [size] arrays: after each sample, the dataset that is furthest behind its weight is next."""
    counts = np.zeros(num)
    for sample in range(size):
        chosen = int(np.argmax(np.asarray(weights) * max(sample, 1) - counts))
        dataset_index[sample], dataset_sample_index[sample] = chosen, counts[chosen]
        counts[chosen] += 1


def install() -> None:
    """A checkout's compiled helpers are built at its first start; here they are these functions."""
    module: Any = ModuleType(_HELPERS)
    module.build_sample_idx_int32 = module.build_sample_idx_int64 = build_sample_idx
    module.build_blending_indices = build_blending_indices
    sys.modules[_HELPERS] = module


def late() -> None:
    sample_few()
    training: Any = importlib.import_module("megatron.training.training")
    _few_micro_batches(training, importlib.import_module("megatron.training").get_args)


def sample_few() -> None:
    """Two iterations are sampled, in this process."""
    training: Any = importlib.import_module("megatron.training.training")
    get_args: Any = importlib.import_module("megatron.training").get_args
    real = training.build_train_valid_test_data_iterators

    @functools.wraps(real)
    def build(*args: Any, **kwargs: Any) -> Any:
        options = get_args()
        held = {name: getattr(options, name) for name in _FEW if getattr(options, name, None) is not None}
        vars(options).update({name: _FEW[name] for name in held})
        if "train_samples" in held:
            options.train_samples = 2 * options.global_batch_size
        try:
            return real(*args, **kwargs)
        finally:
            # The first rank of a real world broadcasts this.
            options.do_train = int(bool(held.keys() & {"train_iters", "train_samples"}) and not options.skip_train)
            vars(options).update({name: held[name] for name in held if name != "num_workers"})

    training.build_train_valid_test_data_iterators = build


def _few_micro_batches(training: Any, get_args: Any) -> None:
    """As many micro-batches as the schedule of the pipeline needs; the others would repeat them."""
    count = training.get_num_microbatches
    step = training.train_step

    @functools.wraps(step)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        options = get_args()
        group = getattr(options, "microbatch_group_size_per_vp_stage", None) or 1
        few = max(options.pipeline_model_parallel_size, group)
        training.get_num_microbatches = lambda: min(count(), few)
        return step(*args, **kwargs)

    training.train_step = train_step
