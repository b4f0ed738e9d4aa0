"""In place of `megatron sft`, `pt` and `rlhf` of ms-swift: its arguments, and its trainer's model and optimizer."""

import sys
from types import SimpleNamespace

from swift.megatron.pipelines.train.pretrain import MegatronPretrain
from swift.megatron.pipelines.train.rlhf import MegatronRLHF
from swift.megatron.pipelines.train.sft import MegatronSft

PIPELINES = {"sft": MegatronSft, "pt": MegatronPretrain, "rlhf": MegatronRLHF}
SAMPLES = range(1_000_000)
"""Stands for the data set where its length decides how many steps an epoch has."""

if __name__ == "__main__":
    command, *words = sys.argv[1:]
    pipeline = PIPELINES[command].__new__(PIPELINES[command])  # its constructor asks for a tokenizer and its template
    args = pipeline.args = pipeline._parse_args(words)
    _, processor = args.get_model_processor(load_model=False)
    pipeline.template = SimpleNamespace(
        config=processor.model_info.config, padding_free=args.padding_free, processor=processor
    )
    args.init_iters(SAMPLES, None)
    pipeline.prepare_trainer()
