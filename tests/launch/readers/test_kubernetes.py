"""Kubernetes objects: the command of a container is read like a script, its places are those of the YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.readers.target import read_targets

PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: gpt}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec: &pod
          containers:
            - name: pytorch
              image: nvcr.io/nvidia/pytorch:26.01-py3
              env:
                - name: CP
                  value: "4"
                - name: CUDA_DEVICE_MAX_CONNECTIONS
                  value: "1"
                - name: HF_TOKEN
                  valueFrom: {secretKeyRef: {name: hf, key: token}}
              command: ["bash", "-c"]
              args:
                - |
                  set -e
                  TP=2
                  torchrun --nnodes $WORLD_SIZE --nproc-per-node 8 --node-rank $RANK \\
                    --master-addr $MASTER_ADDR pretrain_gpt.py \\
                    --num-layers 8 --tensor-model-parallel-size $TP \\
                    --context-parallel-size $CP
              resources:
                limits: {nvidia.com/gpu: 8}
    Worker:
      replicas: 3
      template:
        spec: *pod
"""


def launches(folder: Path, text: str) -> list[Launch]:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return [build_launch(reading) for reading in read_targets(str(folder / "job.yaml"))]


def values(launch: Launch, *names: str) -> tuple[object, ...]:
    return tuple(launch.facts[name].value if name in launch.facts else None for name in names)


def test_a_pytorch_job_is_read_like_its_script(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path, PYTORCH_JOB)
    assert values(launch, "nodes", "gpus_per_node", "world_size", "tp", "cp") == (4, 8, 32, 2, 4)
    assert values(launch, "start", "env.CUDA_DEVICE_MAX_CONNECTIONS") == ("torchrun", "1")
    assert "env.HF_TOKEN" not in launch.facts and launch.reading.notes[0] == "PyTorchJob gpt"


def test_a_place_in_a_block_is_the_line_of_the_file(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path, PYTORCH_JOB)
    lines = PYTORCH_JOB.splitlines()
    for name, word in (("num_layers", "--num-layers"), ("tp", "--tensor-model"), ("cp", "--context-parallel-size")):
        place = launch.facts[name].location
        assert place is not None
        assert lines[place.line - 1][place.column - 1 :].startswith(word), name
    place = launch.facts["env.CUDA_DEVICE_MAX_CONNECTIONS"].location
    assert place is not None and lines[place.line - 1][place.column - 1 :] == '"1"'


POD = """\
# a comment: é
apiVersion: v1
kind: %s
metadata: {name: x}
spec: %s
"""
RANKS = '--nproc-per-node, "8", '
TORCHRUN = (
    f"[torchrun, {RANKS}pretrain_gpt.py, --num-layers=8, \"--context-parallel-size\", '4', "
    '--seq-length, $(SEQ), --data-path, "$$(X)"]'
)
REST = "env: [{name: SEQ, value: '4096'}]"
GPUS = "{limits: {nvidia.com/gpu: 8}}"
CONTAINERS = "{containers: [{command: " + TORCHRUN + ", " + REST + ", resources: " + GPUS + "}]}"
TRAINER = "{trainer: {numNodes: 4, numProcPerNode: auto, args: %s, resourcesPerNode: %s, %s}}"


@pytest.mark.parametrize(
    ("kind", "spec", "nodes"),
    [
        ("Pod", CONTAINERS, 1),
        ("Job", "{template: {spec: " + CONTAINERS + "}}", 1),
        ("CronJob", "{jobTemplate: {spec: {parallelism: 3, template: {spec: " + CONTAINERS + "}}}}", 1),
        ("TrainJob", TRAINER % (TORCHRUN.replace(RANKS, ""), GPUS, REST), 4),
        ("PyTorchJob", "{pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: " + CONTAINERS + "}}}}", 2),
        ("JobSet", "{replicatedJobs: [{replicas: 2, template: {spec: {template: {spec: " + CONTAINERS + "}}}}]}", 1),
    ],
)
def test_commands_in_lists_with_the_variables_that_kubernetes_puts_in(
    tmp_path: Path, kind: str, spec: str, nodes: int
) -> None:
    (launch,) = launches(tmp_path, POD % (kind, spec))
    assert values(launch, "nodes", "gpus_per_node", "cp", "seq_length") == (nodes, 8, 4, 4096)
    place = launch.facts["cp"].location
    assert place is not None and place.line == 5
    assert (POD % (kind, spec)).splitlines()[4][place.column - 1 :].startswith("--context-parallel-size", 1)


def test_an_init_container_that_trains_is_a_launch_and_one_that_prepares_is_none(tmp_path: Path) -> None:
    preparing = "{initContainers: [{command: [git, clone, x]}], " + CONTAINERS[1:]
    (launch,) = launches(tmp_path, POD % ("Pod", preparing))
    assert values(launch, "cp") == (4,)
    first = CONTAINERS[1:-1].replace("containers", "initContainers").replace("'4'", "'2'")
    both = launches(tmp_path, POD % ("Pod", "{" + first + ", " + CONTAINERS[1:]))
    assert [values(launch, "cp") for launch in both] == [(2,), (4,)]


def test_an_mpi_job_has_as_many_ranks_as_its_workers_have_slots(tmp_path: Path) -> None:
    job = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: m}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{command: [mpirun, -x, PATH%s, python, pretrain_gpt.py, --num-layers, "8"]}]}}
    Worker:
      replicas: 4
      template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""
    (launch,) = launches(tmp_path, job % "")
    assert values(launch, "world_size", "nodes") == (32, 4)
    (launch,) = launches(tmp_path, job % ', -np, "16"')
    assert values(launch, "world_size") == (16,)


def test_a_ray_job_has_an_entry_point_and_a_runtime_environment(tmp_path: Path) -> None:
    job = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: ppo}
spec:
  entrypoint: |
    python3 -m verl.trainer.main_ppo \\
      actor_rollout_ref.actor.strategy=megatron \\
      actor_rollout_ref.actor.megatron.context_parallel_size=2 trainer.nnodes=2 trainer.n_gpus_per_node=8
  runtimeEnvYAML: |
    env_vars:
      NVTE_FLASH_ATTN: "0"
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{resources: {limits: {cpu: 4}}}]}}}
    workerGroupSpecs:
      - replicas: 2
        template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""
    (launch,) = launches(tmp_path, job)
    assert launch.dialect == "verl"
    assert values(launch, "start", "cp", "env.NVTE_FLASH_ATTN", "nodes") == ("ray", 2, "0", 2)
    place = launch.facts["cp"].location
    assert place is not None and place.line == 8


def test_a_config_map_carries_the_script_that_the_command_runs(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data:
  SEQ: "4096"
  run.sh: |
    #!/bin/bash
    torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --context-parallel-size $1 --seq-length $SEQ
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      volumes: [{name: s, configMap: {name: scripts}}]
      containers:
        - command: [bash, /scripts/run.sh, "4"]
          envFrom: [{configMapRef: {name: scripts}}]
          volumeMounts: [{name: s, mountPath: /scripts}]
---
apiVersion: v1
kind: Service
metadata: {name: headless}
"""
    (launch,) = launches(tmp_path, text)
    assert values(launch, "cp", "seq_length", "nodes") == (4, 4096, 1)
    place = launch.facts["cp"].location
    assert place is not None and place.line == 8


def test_a_variable_of_another_object_is_unknown(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path, PYTORCH_JOB.replace('value: "4"', "valueFrom: {configMapKeyRef: {name: x, key: y}}"))
    assert launch.unknown["cp"] == "its value is in another Kubernetes object"
    text = PYTORCH_JOB.replace(
        "              env:\n", "              envFrom: [{configMapRef: {name: x}}]\n              env:\n"
    )
    (launch,) = launches(tmp_path, text.replace("TP=2", "TP=${TP:-2}"))
    assert "may be set by x, which line 13 names" in launch.unknown["tp"]


def test_several_jobs_of_a_file_are_launches_of_their_own(tmp_path: Path) -> None:
    found = launches(
        tmp_path, PYTORCH_JOB + "---\n" + PYTORCH_JOB.replace('"4"', '"2"').replace("name: gpt", "name: x")
    )
    assert [launch.facts["cp"].value for launch in found] == [4, 2]
    assert [launch.reading.command for launch in found] == [
        "launch 1 of 2: context_parallel_size=4",
        "launch 2 of 2: context_parallel_size=2",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: x}]}\n",
        "apiVersion: v1\nkind: Pod\nspec: 5\n",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [5, {command: 5, args: {a: b}}, {command: [[1], {a: 2}]}]}\n",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {pytorchReplicaSpecs: [1, 2]}\n",
        "apiVersion: ray.io/v1\nkind: RayJob\nspec: {entrypoint: [1], runtimeEnvYAML: '['}\n",
        "apiVersion: v1\nkind: ConfigMap\ndata: 5\n",
        "apiVersion: v1\nkind: List\nitems: 5\n",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [sleep, inf]}]}\n",
    ],
)
def test_objects_that_train_nothing_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(HcpError) as refused:
        launches(tmp_path, text)
    assert "\n" not in str(refused.value) and str(refused.value).count(";") >= 1
