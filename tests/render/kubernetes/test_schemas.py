"""Manifests against the schemas of their CustomResourceDefinitions.

schemas.json has the part of them that these objects use, without descriptions. `python lab jobs/targets` derives it
from checkouts of kubeflow/trainer, kubernetes-sigs/jobset and ray-project/kuberay (Apache-2.0), whose commits it names,
and holds the same manifests against the whole schemas.
"""

import copy
import json
from pathlib import Path

import pytest
import yaml

from support.hcp_process import run_hcp
from support.target_launches import LAUNCHES

jsonschema = pytest.importorskip("jsonschema")
SCHEMAS = json.loads(Path(__file__).with_name("schemas.json").read_text())["schemas"]


def schema_of(one):
    group, _, version = one["apiVersion"].rpartition("/")
    return SCHEMAS.get(f"{one['kind']}.{group}/{version}")


def errors_in(one):
    return [error.message for error in jsonschema.Draft202012Validator(schema_of(one)).iter_errors(one)]


@pytest.mark.slow
def test_every_object_is_one_that_its_resource_accepts(drawn):
    assert [errors_in(one) for one in drawn.values() if schema_of(one)].count([]) == len(drawn) - ("ConfigMap" in drawn)


SPEC = "spec.replicatedJobs.0.template.spec"
POD = f"{SPEC}.template.spec"
GONE = object()
BROKEN = [
    ("JobSet", "spec.failurePolicy.maxRestarts", "two"),
    ("JobSet", "spec.failurePolicy.restartStrategy", "Blocking"),
    ("JobSet", "spec.failurePolicy.rules.0.action", "Fail"),
    ("JobSet", "spec.failurePolicy.rules.0.name", GONE),
    ("JobSet", "spec.failurePolicy.rules.0.onJobFailureReasons", "PodFailurePolicy"),
    ("JobSet", "spec.replicatedJobs.0.name", GONE),
    ("JobSet", "spec.replicatedJobs.0.replicas", -1),
    ("JobSet", f"{SPEC}.parallelism", "2"),
    ("JobSet", f"{SPEC}.completionMode", 1),
    ("JobSet", f"{SPEC}.backOffLimit", 0),
    ("JobSet", f"{SPEC}.podFailurePolicy.rules.0.action", GONE),
    ("JobSet", f"{SPEC}.podFailurePolicy.rules.0.onExitCodes.operator", GONE),
    ("JobSet", f"{SPEC}.podFailurePolicy.rules.0.onExitCodes.values", ["137"]),
    ("JobSet", f"{POD}.gracePeriod", 600),
    ("JobSet", f"{POD}.containers", GONE),
    ("JobSet", f"{POD}.containers.0.name", GONE),
    ("JobSet", f"{POD}.containers.0.args", "job run"),
    ("JobSet", f"{POD}.containers.0.env.0.name", GONE),
    ("JobSet", f"{POD}.containers.0.volumeMounts.0.mountPath", GONE),
    ("JobSet", f"{POD}.containers.0.resources.limits.nvidia\\.com/gpu", "eight"),
    ("JobSet", f"{POD}.volumes.0.hostPath.path", GONE),
    ("TrainJob", "spec.runtimeRef.name", ""),
    ("TrainJob", "spec.runtimeRef", GONE),
    ("TrainJob", "spec.trainer.numNodes", -1),
    ("TrainJob", "spec.trainer.image", "i" * 501),
    ("TrainingRuntime", "spec", {}),
    ("RayJob", "spec.entrypoint", ["python3"]),
    ("RayJob", "spec.backoffLimit", "1"),
    ("RayJob", "spec.rayClusterSpec.headGroupSpec.template", GONE),
    ("RayJob", "spec.rayClusterSpec.workerGroupSpecs.0.groupName", GONE),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One object of each kind, rendered once."""
    found: dict[str, object] = {}
    for target, words, name, text in LAUNCHES:
        folder = tmp_path_factory.mktemp(target)
        (folder / name).write_text(text)
        for one in yaml.safe_load_all(run_hcp("render", name, "--target", target, *words, cwd=folder).stdout):
            found.setdefault(one["kind"], one)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "path", "value"), BROKEN, ids=[f"{kind} {path}" for kind, path, _ in BROKEN])
def test_a_broken_manifest_is_refused(whole, kind, path, value):
    one = copy.deepcopy(whole[kind])
    assert not errors_in(one)
    *steps, last = [step.replace("\0", ".") for step in path.replace("\\.", "\0").split(".")]
    place = one
    for step in steps:
        place = place[int(step)] if step.isdecimal() else place[step]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    assert errors_in(one)
