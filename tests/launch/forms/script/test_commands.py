"""How training commands are found and taken apart: launchers, wrappers, Slurm options, the environment."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.readers.script import read_shell

FLAGS = "--num-layers 2 --context-parallel-size 4"


def read(script: str) -> Reading:
    return read_shell(script, "x.sh")


def facts(script: str, *names: str) -> tuple[Any, ...]:
    """The values of facts; an unknown one is its reason in a list, an absent one an empty list."""
    reading = read(script)
    absent = {name: [reading.unknown[name]] if name in reading.unknown else [] for name in names}
    return tuple(reading.facts[name].value if name in reading.facts else absent[name] for name in names)


@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("torchrun --nproc_per_node 8 pretrain_gpt.py ARGS", "torchrun"),
        ("/opt/venv/bin/torchrun --nproc-per-node=8 -m pretrain_gpt ARGS", "torchrun"),
        ("python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py ARGS", "torchrun"),
        ("python3.10 -u -m torch.distributed.launch --nproc_per_node 8 --use-env pretrain_gpt.py ARGS", "torchrun"),
        ("ft_launcher --ft-param-rank_heartbeat_timeout=900 --nproc_per_node=8 pretrain_gpt.py ARGS", "ft_launcher"),
        ("uv run --no-sync python -m torch.distributed.run --nproc_per_node=8 pretrain_gpt.py ARGS", "torchrun"),
        ("srun -l --mpi=pmix -N 2 python -u pretrain_gpt.py ARGS", "srun"),
        ("srun --container-image img.sqsh --container-mounts a:b python -u pretrain_gpt.py ARGS", "srun"),
        ('srun bash -c "cd /opt && export A=1; python pretrain_gpt.py ARGS"', "srun"),
        ("srun bash -lc 'torchrun --nproc_per_node 8 pretrain_gpt.py ARGS'", "torchrun"),
        ('srun sh -c "torchrun --nproc_per_node 8 pretrain_gpt.py ARGS" 2>&1 | tee log', "torchrun"),
        ("srun bash -c 'exec \"$@\"' x python pretrain_gpt.py ARGS", "srun"),
        ('CMD="python pretrain_gpt.py ARGS"\nsrun sh -c "$CMD"', "srun"),
        ('CMD="python pretrain_gpt.py ARGS"\neval "$CMD"', "python"),
        ('CMD="python pretrain_gpt.py ARGS"\neval srun $CMD', "srun"),
        ('CMD=(torchrun --nproc_per_node 8 pretrain_gpt.py ARGS)\nsrun "${CMD[@]}"', "torchrun"),
        ("python pretrain_gpt.py ARGS &", "python"),
        ("./pretrain_gpt.py ARGS", "python"),
        ("$PYTHON pretrain_gpt.py ARGS", ["PYTHON is not set in this script"]),
        ("mpirun -np 16 python pretrain_gpt.py ARGS", ["started by mpirun"]),
        ("$LAUNCH ARGS", ["LAUNCH is not set in this script"]),
        ("nohup time env A=1 numactl --membind=0 python pretrain_gpt.py ARGS > log 2>&1 &", "python"),
        ("nsys profile -o x --trace cuda,nvtx torchrun --nproc_per_node 8 pretrain_gpt.py ARGS", "torchrun"),
        ('docker run --rm -v a:b img bash -c "torchrun --nproc_per_node 8 pretrain_gpt.py ARGS"', "torchrun"),
        ("for h in a b; do ssh $h 'cd x; torchrun pretrain_gpt.py ARGS' & done; wait", "torchrun"),
        ("ray job submit --address x -- python pretrain_gpt.py ARGS", "ray"),
        ("cd x && torchrun pretrain_gpt.py ARGS || exit 1", "torchrun"),
        ("if [ $R = 0 ]; then\n torchrun pretrain_gpt.py ARGS\nfi", "torchrun"),
        ('run() { torchrun pretrain_gpt.py "$@"; }\nrun ARGS', "torchrun"),
        ("run() { torchrun pretrain_gpt.py ARGS; }", "torchrun"),
        ("sbatch <<EOF\n#!/bin/bash\n#SBATCH -N 2\nsrun python pretrain_gpt.py ARGS\nEOF", "srun"),
        ('sbatch -N 2 --wrap="srun python pretrain_gpt.py ARGS"', "srun"),
        ("bash <<'EOF'\ntorchrun pretrain_gpt.py ARGS\nEOF", "torchrun"),
        ("cat > run.sh <<EOF\ntorchrun pretrain_gpt.py ARGS\nEOF\nsrun bash run.sh", "torchrun"),
        ("echo '#SBATCH -N 2' > a.sh\necho torchrun pretrain_gpt.py ARGS >> ./a.sh\nsbatch a.sh", "torchrun"),
        (
            "cat > a.sh <<EOF\nx\nEOF\necho torchrun pretrain_gpt.py ARGS > a.sh\nsh a.sh",
            "torchrun",
        ),
        (
            'C=$(cat <<E\npython pretrain_gpt.py ARGS\nE\n)\necho "$C" > w.sh\ntorchrun --no-python bash w.sh',
            "torchrun",
        ),
        ("printf '%s\\n' 'torchrun pretrain_gpt.py ARGS' > a.sh\n. a.sh", "torchrun"),
        ("cat <<EOF | sbatch\n#!/bin/bash\nsrun python pretrain_gpt.py ARGS\nEOF", "srun"),
        ("ARGS", [None]),
        *(
            (f"{start} -m {package}.integrations.megatron pretrain_gpt.py ARGS", start.split()[0])
            for start in ("torchrun --nproc-per-node 8", "python")
            for package in ("megatron_hcp", "hcp")
        ),
    ],
)
def test_the_training_command_is_found_in_all_its_forms(command: str, start: object) -> None:
    script = command.replace("ARGS", FLAGS)
    reading = read(script)
    assert [(s.key, s.value) for s in reading.settings] == [("num_layers", ["2"]), ("context_parallel_size", ["4"])]
    if start != [None]:
        assert facts(script, "start") == (start,)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "echo torchrun pretrain_gpt.py --num-layers 2 --context-parallel-size 4",
        "python -c 'import torch'",
        "python tools/preprocess_data.py --input x",
        "pip install torch",
        "# python pretrain_gpt.py --num-layers 2",
        "cat <<EOF\npython pretrain_gpt.py --num-layers 2\nEOF",
        "echo -e 'a\\ntorchrun pretrain_gpt.py --num-layers 2' > a.sh\nsh a.sh",  # an escape that isn't read
        "echo torchrun pretrain_gpt.py --num-layers 2 > a.sh\nsh b.sh",
        "A='python pretrain_gpt.py --num-layers 2'",
        "if false; then torchrun pretrain_gpt.py --num-layers 2; fi",
        "bash other.sh",
        "python",
        "srun",
        "torchrun",
        "torchrun --nproc_per_node 8",
        "python -m",
        "bash -c",
        "env A=1",
        "sbatch",
        "ray job submit --",
        "python -",
        "python -m megatron_hcp check -- --num-layers 2",
        "python3 -P -m hcp check --dialect mlm -- --num-layers 2",
        "python -m megatron_hcp.integrations.megatron",
    ],
)
def test_what_starts_no_training_is_no_launch(script: str) -> None:
    with pytest.raises(HcpError, match="no training command"):
        read(script)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun -m torchtitan.train --job.config_file x.toml", "torchtitan"),
        ("python -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1", "OpenRLHF"),
        ("python nemo_rl/run.py", "NeMo-RL"),
    ],
)
def test_another_frameworks_launch_is_named_and_refused(command: str, name: str) -> None:
    with pytest.raises(HcpError, match=f"{name}.* not supported"):
        read(command)


def test_bridge_and_verl_commands_are_read_as_theirs() -> None:
    bridge = read(
        "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config -tp 2 "
        "model.context_parallel_size=4 'model.cp_comm_type=[p2p,a2a]'"
    )
    assert bridge.dialect == "bridge" and not bridge.complete
    assert {s.key: s.value for s in bridge.settings} == {
        "model.tensor_model_parallel_size": 2,
        "model.context_parallel_size": 4,
        "model.cp_comm_type": ["p2p", "a2a"],
    }
    assert bridge.facts["model_name"].value == "llama3_8b_pretrain_config"
    verl = read(
        "python3 -m verl.trainer.main_ppo \\\n actor_rollout_ref.actor.megatron.context_parallel_size=2 \\\n"
        " +actor_rollout_ref.actor.megatron.x=$FOO trainer.nnodes=2 $@"
    )
    assert verl.dialect == "verl" and verl.facts["start"].value == "ray"
    assert verl.unseen is None and any("arguments" in note for note in verl.notes)
    assert verl.unknown["actor_rollout_ref.actor.megatron.x"] == "FOO is not set in this script"
    sft = read(
        "torchrun --nnodes 1 --nproc_per_node=8 -m verl.trainer.sft_trainer engine=megatron "
        "engine.context_parallel_size=2 model.path=x"
    )
    assert sft.dialect == "verl" and sft.facts["start"].value == "torchrun" and sft.facts["gpus_per_node"].value == 8


HEADER = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8 --gpus-per-node=h100:8  # all of them\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (HEADER + "srun python x.py ARGS", (4, 8, 8, 32)),
        (HEADER.replace("H --n", "H <SLURM OPTIONS> --n") + "srun python x.py ARGS", (4, 8, 8, 32)),
        ("#SBATCH -A <account> -N 4 <SLURM OPTIONS>\nsrun python x.py ARGS", (4, [], [], [])),
        ("#SBATCH --account <account> --nodes=4\nsrun python x.py ARGS", (4, [], [], [])),
        (HEADER + "srun -N 2 python x.py ARGS", (2, 8, 8, 16)),
        (HEADER + "srun -N2 --ntasks-per-node 4 python x.py ARGS", (2, 8, 4, 8)),
        (HEADER + "srun -n 16 python x.py ARGS", (4, 8, 8, 16)),
        (HEADER + "torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 x.py ARGS", (4, 8, 8, [])),
        (HEADER + "torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE x.py ARGS", (4, 8, 8, [])),
        ("#SBATCH --gres=gpu:h100:8,nvme:1\ntorchrun --nproc_per_node $SLURM_GPUS_ON_NODE x.py ARGS", (1, 8, [], [])),
        (HEADER + "torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node gpu x.py ARGS", (4, 8, 8, [])),
        (HEADER + "torchrun --nnodes=$NODES x.py ARGS", (4, 1, 8, [])),
        ("#SBATCH -N 2\n#SBATCH -n 16\nsrun python x.py ARGS", (2, 8, 8, 16)),
        ("#SBATCH --nodes 2\n#SBATCH --gres=gpu:4\nsrun --ntasks-per-node=4 python x.py ARGS", (2, 4, 4, 8)),
        ("#SBATCH --nodes=2-4\n#SBATCH --ntasks-per-node=8\nsrun python x.py ARGS", (["--nodes is '2-4'"], 8, 8, [])),
        ("#SBATCH --nodes=$N\nsrun python x.py ARGS", (["--nodes is '$N'"], [], [], [])),
        ("#SBATCH --gpus=16\n#SBATCH --nodes=2\nsrun python x.py ARGS", (2, 8, [], [])),
        ("##SBATCH --nodes=2\n #SBATCH --nodes=3\nsrun python x.py ARGS", ([], [], [], [])),
        ("echo\n#SBATCH --nodes=2\nsrun python x.py ARGS", ([], [], [], [])),
        ("torchrun x.py ARGS", (1, 1, [], [])),
        ("torchrun --standalone --nproc-per-node 4 x.py ARGS", (1, 4, [], [])),
        (
            "torchrun --nnodes 2:4 --nproc-per-node auto x.py ARGS",
            (["--nnodes is '2:4'"], ["--nproc-per-node is 'auto'"], [], []),
        ),
        ("torchrun --nnodes 2:2 --nproc-per-node $G x.py ARGS", (2, ["G is not set in this script"], [], [])),
        ("torchrun $DIST x.py ARGS", (["DIST is not set in this script"],) * 2 + ([], [])),
        ("python x.py ARGS", ([], [], [], [])),
    ],
)
def test_nodes_gpus_tasks_and_ranks(script: str, expected: tuple[object, ...]) -> None:
    found = facts(script.replace("ARGS", FLAGS), "nodes", "gpus_per_node", "ntasks_per_node", "world_size")
    assert found == expected


def test_every_option_of_slurm_and_torchrun_is_a_fact_by_its_long_name() -> None:
    script = (
        "#!/bin/bash\n#SBATCH -J job -t 4:00:00 -p gpu\n#SBATCH --signal=B:USR1@300\n#SBATCH --requeue\n"
        '#SBATCH --output="logs/a b.%j" -A acc\n#SBATCH --exclusive\n#SBATCH -N4\n#SBATCH --comment=a#b\n'
        "srun -lu -K1 --distribution=plane=8 --cpu-bind none --export=ALL,A=b "
        f"torchrun --nnodes 4 --rdzv-id x x.py {FLAGS}"
    )
    found = {name: fact.value for name, fact in read(script).facts.items() if "." in name}
    assert found == {
        "sbatch.job_name": "job",
        "sbatch.time": "4:00:00",
        "sbatch.partition": "gpu",
        "sbatch.signal": "B:USR1@300",
        "sbatch.requeue": True,
        "sbatch.output": "logs/a b.%j",
        "sbatch.account": "acc",
        "sbatch.exclusive": True,
        "sbatch.nodes": "4",
        "sbatch.comment": "a",
        "srun.label": True,
        "srun.kill_on_bad_exit": "1",
        "srun.distribution": "plane=8",
        "srun.cpu_bind": "none",
        "srun.export": "ALL,A=b",
        "env.A": "b",
        "torchrun.nnodes": "4",
        "torchrun.rdzv_id": "x",
    }


@pytest.mark.parametrize(
    ("options", "placement"),
    [
        ("--distribution=cyclic", "cyclic"),
        ("-m block:cyclic", "block"),
        ("-m plane=4", "plane=4"),
        ("", []),
        ("--distribution *", "block"),
        ("-m arbitrary", "arbitrary"),
        ("-m $D", ["D is not set in this script"]),
    ],
)
def test_placement_is_sruns_distribution(options: str, placement: object) -> None:
    assert facts(f"srun {options} python x.py {FLAGS}", "placement") == (placement,)
    assert facts(f"srun {options} torchrun x.py {FLAGS}", "placement") == ([],)


def test_the_environment_of_the_program() -> None:
    script = (
        "export A=1 B\nB=2\nC=3\nexport C\nD=4\nexport E=$(x) F='a b'\ndeclare -x G=7\nexport H=1\nexport -n H\n"
        "export I=1\nunset I\nunset J\nif x; then export K=1; fi\nexport WANDB_API_KEY=secret\nset -a\nL=9\nset +a\n"
        f"M=5 srun env N=6 -u A O=$(y) python x.py {FLAGS}\n"
    )
    reading = read(script)
    known = {name[4:]: fact.value for name, fact in reading.facts.items() if name.startswith("env.")}
    assert known == {
        "A": None,
        "B": "2",
        "C": "3",
        "F": "a b",
        "G": "7",
        "I": None,
        "J": None,
        "L": "9",
        "M": "5",
        "N": "6",
    }
    assert {name[4:] for name in reading.unknown if name.startswith("env.")} == {"E", "K", "O"}
    assert "secret" not in repr(reading.facts)


def test_srun_may_pass_only_some_variables_on() -> None:
    script = f"export A=1 B=2\nsrun --export=A,C=3,HF_TOKEN=secret python x.py {FLAGS}"
    assert facts(script, "env.A", "env.B", "env.C") == ("1", [], "3")
    assert "secret" not in repr(read(script).facts)


def test_the_last_command_that_splits_the_model_is_taken_and_said() -> None:
    script = (
        f"python tools/preprocess_data.py --input x\ntorchrun --nnodes 1 pretrain_gpt.py {FLAGS}\n"
        "torchrun --nnodes 2 pretrain_gpt.py --num-layers 4 --context-parallel-size 8\n"
        "torchrun --nnodes 3 pretrain_gpt.py --num-layers 8\n"
    )
    reading = read(script)
    assert reading.facts["nodes"].value == 2
    assert reading.notes == ("3 training commands; this is the last that says how the model is split, in line 3",)


def test_a_forced_dialect_reads_what_detection_would_not() -> None:
    reading = read_shell("python my_own.py --context-parallel-size 4", "x.sh")
    assert reading.dialect == "mlm"
    forced = read_shell("python my_own.py model.context_parallel_size=4", "x.sh", "bridge-provider")
    assert forced.dialect == "bridge-provider" and forced.settings[0].key == "model.context_parallel_size"
