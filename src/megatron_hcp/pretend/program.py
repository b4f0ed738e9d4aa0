"""A pretraining program for GPT, in place of upstream's pretrain_gpt.py, which no wheel of megatron-core has.

It builds the layers as the launch asks for, takes upstream's mock data, and computes upstream's masked mean.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state as groups
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt import gpt_layer_specs as specs
from megatron.training import get_args, get_tokenizer, pretrain
from megatron.training.arguments import core_transformer_config_from_args
from megatron.training.utils import get_batch_on_this_cp_rank, get_batch_on_this_tp_rank


def model_provider(pre_process: bool = True, post_process: bool = True, *_: Any, **more: Any) -> Any:
    args = get_args()
    config = more.get("config") or core_transformer_config_from_args(args)
    is_te = args.transformer_impl == "transformer_engine"
    if args.num_experts:
        spec = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=is_te)
    else:
        layer = specs.get_gpt_layer_with_transformer_engine_spec if is_te else specs.get_gpt_layer_local_spec
        spec = layer(qk_layernorm=args.qk_layernorm, multi_latent_attention=args.multi_latent_attention)
    return GPTModel(config, spec, args.padded_vocab_size, args.max_position_embeddings,
                    pre_process=pre_process, post_process=post_process, parallel_output=True,
                    share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                    position_embedding_type=args.position_embedding_type, rotary_percent=args.rotary_percent,
                    rotary_base=args.rotary_base, vp_stage=more.get("vp_stage"))  # fmt: skip


def loss_of(loss_mask: Any, output: Any) -> Any:
    loss, tokens = torch.sum(output.view(-1).float() * loss_mask.view(-1)), loss_mask.sum().int()
    return loss, tokens, {"lm loss": torch.cat([loss.detach().view(1), tokens.view(1)])}


def forward_step(data_iterator: Any, model: Any, *_: Any) -> Any:
    batch = {"tokens": None, "labels": None, "loss_mask": None, "attention_mask": None, "position_ids": None}
    if groups.is_pipeline_first_stage() or groups.is_pipeline_last_stage():
        batch = get_batch_on_this_cp_rank(get_batch_on_this_tp_rank(data_iterator))
    output = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])
    return output, partial(loss_of, batch["loss_mask"])


def datasets_provider(samples: Any, *_: Any, **__: Any) -> Any:
    args = get_args()
    config = GPTDatasetConfig(random_seed=args.seed, sequence_length=args.seq_length, tokenizer=get_tokenizer(),
                              split=args.split, reset_position_ids=False, reset_attention_mask=False,
                              eod_mask_loss=False, mid_level_dataset_surplus=0.005,
                              create_attention_mask=args.create_attention_mask_in_dataloader)  # fmt: skip
    return BlendedMegatronDatasetBuilder(MockGPTDataset, samples, lambda: True, config).build()


if __name__ == "__main__":
    datasets_provider.is_distributed = True  # type: ignore[attr-defined]
    pretrain(datasets_provider, model_provider, ModelType.encoder_or_decoder, forward_step)
