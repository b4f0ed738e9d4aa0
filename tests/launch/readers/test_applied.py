"""Manifests that a script hands to kubectl are read like files of Kubernetes objects.

The job is shortened from aws-samples/awsome-distributed-training, 3.test_cases/pytorch/verl/kubernetes/rlvr/setup/
submit-qwen-job.sh.
"""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.readers.target import read_text

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: ${JOB_NAME}
spec:
  template:
    spec:
      containers:
      - name: submit
        env:
        - name: TRAIN_FILE
          value: ${TRAIN_FILE}
        command:
        - /bin/bash
        - -lc
        - |
          set -euo pipefail
          python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' \\
            actor_rollout_ref.actor.megatron.context_parallel_size=${CP} \\
            actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${TP} \\
            trainer.n_gpus_per_node=8 trainer.nnodes=4
"""


def launch(script: str) -> Launch:
    return build_launch(read_text(f"#!/bin/bash\n{script}\n", "submit.sh"))


def sizes(told: Launch) -> list[object]:
    return [told.facts[name].value if name in told.facts else "unknown" for name in ("cp", "tp", "nodes")]


@pytest.mark.parametrize(
    "handed",
    [
        "cat <<EOF | kubectl apply -f -\nJOB\nEOF",
        "cat - <<EOF | tee job.yaml | kubectl create -n x -f -\nJOB\nEOF",
        "kubectl apply -f - <<EOF\nJOB\nEOF",
        "kubectl replace --filename=- <<EOF\nJOB\nEOF",
        'MANIFEST=$(cat <<EOF\nJOB\nEOF\n)\necho "$MANIFEST" | kubectl apply -f -',
        'MANIFEST=$(cat <<EOF\nJOB\nEOF\n)\nkubectl apply -f - <<< "$MANIFEST"',
    ],
)
def test_a_manifest_out_of_the_script_is_read_with_the_scripts_variables(handed: str) -> None:
    told = launch(f"JOB_NAME=x\nCP=${{CP:-2}}\nTP=4\n{handed.replace('JOB', JOB)}")
    assert told.dialect == "verl"
    assert sizes(told) == [2, 4, 4]


def test_a_setting_has_its_place_in_the_script() -> None:
    text = "CP=2\nTP=4\ncat <<EOF | kubectl apply -f -\n" + JOB + "EOF"
    place = launch(text).facts["nodes"].location
    assert place is not None and place.file == "submit.sh"
    line = f"#!/bin/bash\n{text}".split("\n")[place.line - 1]
    assert line[place.column - 1 : place.end_column - 1] == "trainer.nnodes=4"


def test_a_variable_that_the_script_does_not_set_is_unknown_in_the_manifest() -> None:
    told = launch(f"TP=4\ncat <<EOF | kubectl apply -f -\n{JOB}EOF")
    assert sizes(told) == ["unknown", 4, 4]
    assert "CP" in told.unknown["cp"]


def test_a_quoted_here_document_is_left_to_the_containers_shell() -> None:
    job = JOB.replace("set -euo pipefail", "CP=8; TP=1")
    assert sizes(launch(f"CP=2\nTP=4\ncat <<'EOF' | kubectl apply -f -\n{job}EOF")) == [8, 1, 4]


def test_a_job_that_is_submitted_on_a_condition_says_so() -> None:
    told = launch(f"if kubectl get nodes; then\nkubectl apply -f - <<EOF\n{JOB}EOF\nfi")
    assert any("depends on the `if` in line 2" in note for note in told.reading.notes)


@pytest.mark.parametrize(
    ("handed", "why"),
    [
        ("envsubst < job.yaml | kubectl apply -f -", "its text isn't known"),
        (f"cat <<EOF | sed s/2/4/ | kubectl apply -f -\n{JOB}EOF", "its text isn't known"),
        ("cat job.yaml | kubectl apply -f -", "its text isn't known"),
        ("kubectl apply -f -", "its text isn't known"),
        (f"kubectl apply -f - <<EOF\n{JOB}\n$MORE\nEOF", "what is known of it is no YAML"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_said_to_be_unread(handed: str, why: str) -> None:
    with pytest.raises(HcpError, match=rf"the manifest that kubectl applies in line \d+ is not read \({why}\)"):
        launch(handed)


def test_objects_that_start_nothing_are_passed_over() -> None:
    namespace = "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\nEOF\n"
    told = launch(namespace + "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2")
    assert told.dialect == "mlm" and told.facts["cp"].value == 2


@pytest.mark.parametrize("command", ["kubectl apply -f job.yaml", "kubectl delete -f -", "echo apply -f -"])
def test_other_commands_read_no_manifest(command: str) -> None:
    with pytest.raises(HcpError, match="has no training command"):
        launch(f"{command} <<EOF\n{JOB}EOF")
