"""Every other framework is told by what it owns, and refused by name, whatever dialect is forced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects import foreign
from megatron_hcp.launch.dialects.foreign_keys import KEYS
from megatron_hcp.launch.dialects.known_keys import is_known
from megatron_hcp.launch.fact import DIALECTS
from megatron_hcp.launch.readers.target import read_target, read_text
from support.rows import rows

YAML = {
    "a FlagScale": "system: {tensor_model_parallel_size: 2}\nmodel: {num_layers: 4}\ndata: {split: x}\n",
    "a MindSpeed-LLM": "model: {trust_remote_code: true}\nparallel: {cp_size: 2}\ntraining: {seed: 1}\n",
    "a MindSpeed-LLM configuration": "training: {stage: ray_ppo}\n"
    "actor_rollout_ref: {actor_rollout: {model: x, lr: 1}}\ncritic: {model: x}\nalgorithm: {adv_estimator: gae}\n",
    "a Primus": "work_group: amd\nmodules:\n  pre_trainer: {framework: megatron}\n",
    "a Primus configuration": "recipe: llama.llama3\nflavor: finetune\ndataset: {dataset_name: squad}\n",
    "a ROLL": "actor_train:\n  strategy_args: {strategy_name: megatron_train}\nactor_infer: {}\n",
    "an RLinf": "cluster: {component_placement: {actor: all}}\ndata: {max_prompt_length: 8}\nactor: {model: {}}\n",
    "an rLLM launch for Tinker or Fireworks": (  # rllm/trainer/sft/config/tinker.yaml of rLLM
        "tinker_base_url: null\nmodel: {name: Qwen/Qwen3.5-4B, lora_rank: 32}\n"
        "data: {train_files: null, train_batch_size: 32, max_length: 2048}\noptim: {lr: 1e-5}\n"
        "trainer: {project_name: x}\n"
    ),
    "a part of rLLM's configuration": (  # rllm/trainer/config/rllm/base.yaml
        "data: {max_prompt_length: 2048}\nagent: {name: a}\nworkflow: {use_workflow: false}\nrollout: {n: 8}\n"
        "trainer: {total_epochs: 10, project_name: x}\n"
    ),
    "an AgentGym-RL configuration": (  # verl/agent_trainer/config/ppo_trainer.yaml of AgentGym-RL
        "data: {train_file: x.json, max_prompt_length: 8}\nactor_rollout_ref: {agentgym: {task_name: webarena}}\n"
    ),
    "a BioNeMo": "adamw_kwargs: {lr: 1}\nlr_scheduler_kwargs: {num_warmup_steps: 1}\nvalidation: {eval_interval: 5}\n",
    "a NeMo AutoModel": "step_scheduler: {global_batch_size: 8}\ncheckpoint: {enabled: true}\nmodel: {x: 1}\n",
    "a VeOmni": "model: {model_path: x}\ndata: {train_path: y}\ntrain: {micro_batch_size: 1}\n",
    "a torchtune": "model: {_component_: torchtune.models.llama3.llama3_8b}\noptimizer: {lr: 1}\n",
    "an AReaL": "experiment_name: a\ntrial_name: b\nactor: {path: x}\ncritic: {path: y}\n",
    "a SkyRL": "trainer: {policy: {model: {path: x}}}\ndata: {train_files: y}\n",
    "a NeMo-RL": "generation: {backend: vllm}\neval: {metric: pass@k}\ncluster: {gpus_per_node: 8}\n",
    "an ms-swift": "model: x\ndataset: y\ntuner_type: lora\n",
    "an Axolotl": "base_model: m\nsample_packing: true\ncontext_parallel_size: 2\n",
    "a NeMo configuration": "name: x\nmodel: {tensor_model_parallel_size: 2, megatron_amp_O2: true}\n",
    "a NeMo Curator": "dataset: {_target_: nemo_curator.stages.X, split: a}\n",
    "a PyTorch Lightning": "trainer: {_target_: pytorch_lightning.Trainer}\nmodel: {seq_length: 64}\n",
}


@rows("forced", [None, *DIALECTS])
@rows("name", YAML)
def test_a_file_is_refused_by_the_name_of_its_framework(name: str, forced) -> None:
    with pytest.raises(HcpError, match=f"x.yaml looks like {name}") as error:
        read_text(YAML[name], "x.yaml", dialect=forced)
    assert "\n" not in str(error.value) and "give the command line" in str(error.value)


MEGATRON = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --context-parallel-size 2 --seq-length 64"
SCRIPTS = {
    "a MindSpeed launch": f"torchrun pretrain_gpt.py {MEGATRON} --context-parallel-algo megatron_cp_algo\n",
    "a MindSpeed launch (it sets variables for Ascend devices)": "NPUS_PER_NODE=8\n"
    f"torchrun pretrain_gpt.py {MEGATRON}\n",
    "a MindSpeed launch \\(it sets": f"export HCCL_CONNECT_TIMEOUT=1200\ntorchrun pretrain_gpt.py {MEGATRON}\n",
    "a Megatron-DeepSpeed launch": f"torchrun pretrain_gpt.py {MEGATRON} --deepspeed --zero-stage 1\n",
    "a Hugging Face training launch": f"torchrun run_train.py --model_name_or_path x {MEGATRON}\n",
    "an ms-swift launch": "NPROC_PER_NODE=8 megatron export --load x --context_parallel_size 2\n",
    "an ms-swift": "swift sft --model x\n",
    "a LLaMA-Factory": "llamafactory-cli train x.yaml\n",
    "an Axolotl": "axolotl train x.yaml\n",
    "a torchtune": "tune run --nproc_per_node 2 full_finetune_distributed --config x\n",
    "a siiRL": "python3 -m siirl.main_dag actor_rollout_ref.actor.strategy=megatron trainer.nnodes=2\n",
    "a Primus": "./primus-cli direct -- train pretrain --config x.yaml\n",
    "a FlagScale": "flagscale train aquila --config x\n",
    "a DeepSpeed": "deepspeed --num_gpus 8 train.py --num-layers 4\n",
    "a SkyRL": "uv run -m skyrl.train.entrypoints.main_base trainer.epochs=1 data.train_files=x\n",
    "an RL2": "torchrun --nproc_per_node=4 -m RL2.trainer.rm data.max_length=2048 trainer.project=x\n",
    "an AReaL": "python -m areal.launcher.ray x.py actor.path=y\n",
    "a ROLL": "python examples/start_rlvr_pipeline.py --config_path x --config_name y\n",
    "an rLLM launch for Tinker or Fireworks": (  # cookbooks/math/train_tinker.sh of rLLM
        "python -u train.py rllm/backend=tinker model.name=x model.lora_rank=32 training.group_size=8 "
        "data.train_batch_size=32 data.max_prompt_length=2048\n"
    ),
    "an AgentGym-RL launch": (  # examples/train/AgentGym-RL/babyai_train.sh
        "python3 -m verl.agent_trainer.main_ppo algorithm.adv_estimator=grpo data.train_file=x.json "
        "data.train_batch_size=16\n"
    ),
    "an RLinf": "python -m rlinf.main --context-parallel-size 2\n",
    "a BioNeMo": "python /workspace/bionemo/esm2/scripts/train_esm2.py --num-layers 33 --hidden-size 1280\n",
    "a NeMo-RL": "uv run examples/run_eval.py generation.vllm_cfg.x=1 logger.wandb_enabled=True checkpoint.save=y\n",
    "a slime or miles launch trained with FSDP": "python train.py --actor-num-nodes 1 --train-backend fsdp\n",
    "a torchtitan": "torchrun train.py --parallelism.context_parallel_degree 2\n",
}


@rows("forced", [None, *DIALECTS])
@rows("name", SCRIPTS)
def test_a_script_is_refused_by_the_name_of_its_framework(name: str, forced) -> None:
    with pytest.raises(HcpError) as error:
        read_text("#!/bin/bash\n" + SCRIPTS[name], "x.sh", dialect=forced)
    assert f"x.sh looks like {name}".replace("\\", "") in str(error.value) and "\n" not in str(error.value)


@rows("forced", [None, *DIALECTS])
@rows(
    "words, name",
    [
        (["--context-parallel-size", "2", "--context-parallel-algo=ulysses_cp_algo"], "a MindSpeed launch"),
        (["--deepspeed_config", "x", "--num-layers", "2"], "a Megatron-DeepSpeed launch"),
        (["system.context_parallel_size=2", "model.num_layers=2"], "a FlagScale configuration"),
        (["actor_train.model_args.dtype=bf16"], "a ROLL configuration"),
        (["model.seq_length=3", "step_scheduler.x=1"], "a NeMo AutoModel configuration"),
    ],
)
def test_words_are_refused_by_the_name_of_their_framework(words: list[str], name: str, forced, tmp_path) -> None:
    with pytest.raises(HcpError, match=name):
        read_target("", words=words, dialect=forced)
    file = tmp_path / "words.txt"
    file.write_text(" ".join(words) + "\n")
    with pytest.raises(HcpError, match=name):
        read_target(str(file), dialect=forced)


def test_words_of_another_framework_cannot_be_appended_to_a_command_line() -> None:
    with pytest.raises(HcpError, match="a MindSpeed launch"):
        read_target("-", words=["--context-parallel-algo", "x"], stdin=lambda: b"--context-parallel-size 4")


def test_verl_on_ascend_stays_verl() -> None:
    verl = (
        "export HCCL_CONNECT_TIMEOUT=1\npython -m verl.trainer.main_ppo data.train_files=x critic.strategy=megatron\n"
    )
    assert read_text(verl, "x.sh").dialect == "verl"


def test_a_comment_or_a_name_in_passing_names_no_framework() -> None:
    text = f"# swift sft, HCCL_X=1, NPUS_PER_NODE=8\necho 'axolotl train x'\ntorchrun pretrain_gpt.py {MEGATRON}\n"
    assert read_text(text, "x.sh").dialect == "mlm"


def test_no_option_or_key_of_another_framework_is_one_of_ours() -> None:
    options = {option for _, names in foreign.OPTIONS for option in names}
    assert {option for option in options if is_known("mlm", option)} == set()
    keys = {key for _, alternatives in KEYS for (key, *more) in alternatives if not more and not key.endswith(".")}
    assert {key for key in keys if is_known("bridge", key) or is_known("verl", key)} == set()
    assert foreign.of_keys(["model.context_parallel_size", "actor_rollout_ref.actor.megatron.x"]) is None


def test_the_search_for_tools_takes_time_in_proportion_to_the_text() -> None:
    for text in ("A=" * 50_000, "A=b " * 50_000, "env " * 50_000, "deepspeed\t" * 50_000, " " * 100_000):
        assert foreign.of_tools(text + "\n") in (None, "a DeepSpeed launch")


@given(st.data())
def test_what_a_pattern_of_programs_matches_has_one_of_its_words(data: st.DataObject) -> None:
    _, words, pattern = data.draw(st.sampled_from(foreign._PROGRAMS))
    program = data.draw(st.from_regex(pattern))
    assert any(word in program.casefold() for word in words.split())


@pytest.mark.parametrize(
    "folder", ["/home/nemo", "/data/axolotl", "/opt/veomni_share", "/x/MindSpeed-tests/..", "/data/siirl"]
)
def test_a_persons_folder_is_no_framework(folder: str) -> None:
    assert foreign.of_program(f"{folder}/Megatron-LM/pretrain_gpt.py") is None
    assert foreign.of_program(f"{folder}/Megatron-Bridge/scripts/training/run_recipe.py") is None


def test_a_trainer_with_a_few_options_of_megatrons_is_none_of_ours_where_its_program_is_not_known(tmp_path) -> None:
    own = "--max_context_width=4096 --num_heads=32 --checkpoint_dir=x --sharding_strategy=full --val_batch_size=1"
    script = tmp_path / "fsdp.sh"
    for more, is_ours in (("--num_layers=32", False), ("--num-layers 32 --hidden-size 8 --seq-length 8 --bf16", True)):
        script.write_text(f'torchrun --nproc-per-node 8 "$TRAIN_SCRIPT" {own} {more}\n')
        if is_ours:
            assert read_target(str(script)).dialect == "mlm"
        else:
            with pytest.raises(UnrecognisedError):
                read_target(str(script))
