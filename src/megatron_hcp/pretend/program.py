"""In place of pretrain_gpt.py, which no wheel of megatron-core has: GPT on mock data, with a masked mean."""

from functools import partial
from importlib import import_module
from typing import Any

import torch
from megatron.core import parallel_state as groups
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt import gpt_layer_specs as specs
from megatron.training import arguments, get_args, get_tokenizer, pretrain


# fmt: off
def model_provider(pre_process: bool = True, post_process: bool = True, *_: Any, **more: Any) -> Any:
    args, is_te = get_args(), get_args().transformer_impl == "transformer_engine"
    config = more.get("config") or arguments.core_transformer_config_from_args(args)
    layer = specs.get_gpt_layer_with_transformer_engine_spec if is_te else specs.get_gpt_layer_local_spec
    spec = (specs.get_gpt_decoder_block_spec(config, use_transformer_engine=is_te) if args.num_experts
            else layer(qk_layernorm=args.qk_layernorm, multi_latent_attention=args.multi_latent_attention))
    given = {name: getattr(args, name) for name in ("position_embedding_type", "rotary_percent", "rotary_base")}
    given |= {"share_embeddings_and_output_weights": not args.untie_embeddings_and_output_weights}
    if args.mtp_num_layers:
        given["mtp_block_spec"] = specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=is_te)
    return GPTModel(config, spec, args.padded_vocab_size, args.max_position_embeddings, pre_process=pre_process,
                    post_process=post_process, parallel_output=True, vp_stage=more.get("vp_stage"), **given)


def loss_of(loss_mask: Any, output: Any) -> Any:
    loss, tokens = torch.sum(output.view(-1).float() * loss_mask.view(-1)), loss_mask.sum().int()
    return loss, tokens, {"lm loss": torch.cat([loss.detach().view(1), tokens.view(1)])}


def forward_step(data_iterator: Any, model: Any, *_: Any) -> Any:
    keys, size = ("tokens", "position_ids", "labels", "loss_mask"), groups.get_context_parallel_world_size()
    empty = torch.zeros(get_args().micro_batch_size, get_args().seq_length)
    batch = next(data_iterator) if data_iterator else dict.fromkeys(keys, empty)
    chunks = torch.tensor([(rank := groups.get_context_parallel_rank()), 2 * size - 1 - rank] if size > 1 else [0, 1])
    cut = {key: batch[key].unflatten(1, (2 * size, -1))[:, chunks].flatten(1).cuda() for key in keys}
    tokens, positions, labels = (cut[key].long() for key in keys[:3])
    more = {"loss_mask": cut["loss_mask"]} if get_args().mtp_num_layers else {}
    return model(tokens, positions, None, labels=labels, **more), partial(loss_of, cut["loss_mask"])


def datasets_provider(samples: Any, vp_stage: Any = None) -> Any:
    args, off = get_args(), ("reset_position_ids", "reset_attention_mask", "eod_mask_loss", "create_attention_mask")
    config = GPTDatasetConfig(random_seed=args.seed, sequence_length=args.seq_length, tokenizer=get_tokenizer(),
                              split=args.split, **dict.fromkeys(off, False))
    return BlendedMegatronDatasetBuilder(MockGPTDataset, samples, lambda: True, config).build()


if __name__ == "__main__":
    datasets_provider.is_distributed = True  # type: ignore[attr-defined]
    parse = getattr(arguments, "parse_and_validate_args", None)  # since 0.18 the program does it
    read: Any = parse and import_module("megatron.training.argument_utils").pretrain_cfg_container_from_args
    pretrain(*([read(parse())] if parse else []), train_valid_test_dataset_provider=datasets_provider,
             model_provider=model_provider, model_type=ModelType.encoder_or_decoder, forward_step_func=forward_step)
