"""What a manifest says: the words of the launch, the check, the failure policy, image and volumes."""

import re

import pytest

from support.target_launches import LAUNCHES, MEGATRON

SIZES = ["--nodes", "2", "--gpus-per-node", "8"]
PODS = [*SIZES, "--container-image", "x:1", "--mounts", "ck:/ck", "--logs", "/ck/logs"]
LAUNCH = f"torchrun pretrain_gpt.py {MEGATRON} --save /ck/a"


def pod_of(job_set):
    return job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def started(container):
    """The words that Kubernetes hands to a container: k8s.io/kubernetes/third_party/forked/golang/expansion."""
    return [
        re.sub(r"\$(\$|\(([^)]*)\))", lambda found: "$" if found[1] == "$" else f"<{found[2]}>", word)
        for word in [*container["command"], *container["args"]]
    ]


def test_the_words_of_the_launch_reach_the_trainer_as_they_are(manifest):
    words = ["a b", "c$(d)", "$$e", "$f", "'g'", '"h"', "ü", "{i: j}", "null", "12"]
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    found = manifest("jobset", *PODS, text=f"{LAUNCH} --data-path {quoted}\n")
    argv = started(pod_of(found["JobSet"])["containers"][0])
    assert argv[-len(words) - 1 :] == ["--data-path", *words]
    assert argv[argv.index("--") + 1 :][8:10] == ["pretrain_gpt.py", "--context-parallel-size"]
    assert "--folder=/ck/logs/train-<HCP_JOB_ID>" in argv and "--checkpoints=/ck/a" in argv


def test_a_variable_is_known_in_a_pod_or_the_launch_is_refused(manifest, hcp, tmp_path):
    text = LAUNCH.replace("/ck/a", "$HOME/$SLURM_JOB_NAME-$SLURM_JOB_ID") + "\n"
    found = manifest("jobset", *PODS, "--env", "HOME=/ck/me", text=text)
    argv = started(pod_of(found["JobSet"])["containers"][0])
    assert argv[-1] == "/ck/me/train-<HCP_JOB_ID>"
    done = hcp("render", "train.sh", "--target", "jobset", *PODS, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds ${HOME}, which nothing sets in a pod" in done.stderr and "--env HOME=VALUE" in done.stderr
    (tmp_path / "train.sh").write_text(LAUNCH.replace("/ck/a", "/ck/$(date +%F)") + "\n")
    done = hcp("render", "train.sh", "--target", "jobset", *PODS, cwd=tmp_path)
    assert "holds the date, $(date +%F), which no shell takes in a pod" in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("target", ["jobset", "trainjob"])
def test_what_cannot_be_mended_by_another_attempt_is_final(manifest, target):
    found = manifest(target, *PODS, "--requeue", "3", "--signal", "900", text=LAUNCH + "\n")
    spec = found["JobSet"]["spec"] if target == "jobset" else found["TrainingRuntime"]["spec"]["template"]["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == 3
    assert [rule["onJobFailureReasons"] for rule in spec["failurePolicy"]["rules"]] == [["PodFailurePolicy"]]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    again = {
        rule["onExitCodes"]["containerName"]: rule["onExitCodes"]["values"] for rule in job["podFailurePolicy"]["rules"]
    }
    assert 16 in again["node"] and 17 not in again["node"] and 1 not in again["check"] and job["backoffLimit"] == 0
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] == 900


def test_the_launchs_own_pod_is_kept(manifest):
    (target, words, name, text), *_ = [each for each in LAUNCHES if each[2] == "job.yaml"]
    pod = pod_of(manifest(target, *words, name=name, text=text)["JobSet"])
    trainer = pod["containers"][0]
    assert trainer["image"] == "nvcr.io/nvidia/nemo:25.09" and pod["nodeSelector"] == {"gpu": "h100"}
    assert {"name": "ck", "persistentVolumeClaim": {"claimName": "ck"}} in pod["volumes"]
    assert {"name": "ck", "mountPath": "/ck", "subPath": "llama"} in trainer["volumeMounts"]
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}
    token = next(entry for entry in trainer["env"] if entry["name"] == "TOKEN")
    assert token["valueFrom"]["secretKeyRef"]["name"] == "hub"
    assert not any(entry["name"].startswith("PET_") for entry in trainer["env"])


@pytest.mark.slow
def test_a_slurm_script_brings_its_image_and_its_folders(manifest):
    (target, words, name, text), *_ = LAUNCHES
    pod = pod_of(manifest(target, *words, name=name, text=text)["JobSet"])
    trainer = pod["containers"][0]
    assert trainer["image"] == "nvcr.io/nvidia/nemo:25.09" and trainer["workingDir"] == "/opt/megatron"
    assert {"name": "hcp-1", "hostPath": {"path": "/data"}} in pod["volumes"]
    assert {"name": "hcp-1", "mountPath": "/data", "readOnly": True} in trainer["volumeMounts"]
    assert trainer["resources"]["requests"] == {"cpu": 32, "memory": "100Gi"}, "srun gives each of 8 ranks 4 CPUs"


@pytest.mark.slow
def test_hcp_check_reads_the_manifest_as_it_reads_the_launch(manifest, hcp, tmp_path):
    bad = LAUNCH.replace("--context-parallel-size 2", "--context-parallel-size 3")
    for text, code in ((LAUNCH, 0), (bad, 1)):
        (tmp_path / "train.sh").write_text(text + "\n")
        hcp("render", "train.sh", "--target", "jobset", *PODS, "-o", "job.yaml", cwd=tmp_path)
        assert hcp("check", "job.yaml", cwd=tmp_path).returncode == code


REFUSED = [
    (["--target", "rayjob"], LAUNCH, "found a mlm launch with --target rayjob; wanted --target trainjob or jobset"),
    (
        ["--target", "jobset"],
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.context_parallel_size=2",
        "found a verl launch with --target jobset; wanted --target rayjob or ray-sub",
    ),
    (["--target", "jobset", "--array-range", "0-3"], LAUNCH, "found array_range with --target jobset"),
    (["--target", "jobset", "--health", "dcgm"], LAUNCH, "found health with --target jobset"),
    (["--target", "jobset", "--start", "ray"], LAUNCH, "found --start ray with --target jobset"),
    (["--target", "trainjob", "--submit"], LAUNCH, "found --submit or --test-only with --target trainjob"),
]


@pytest.mark.parametrize(("words", "text", "said"), REFUSED)
def test_what_a_target_cannot_carry_is_refused_before_anything_is_asked(hcp, tmp_path, words, text, said):
    (tmp_path / "train.sh").write_text(text + "\n")
    done = hcp("render", "train.sh", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr and "not stated" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nodes (the size of the job); gpus_per_node (the ranks of a node); container_image (a pod runs an image)"),
        ([*PODS, "--logs", "/elsewhere"], "logs: found /elsewhere, which is on no volume of the pods"),
        ([*PODS, "--container-image", "/images/x.sqsh"], "found the file /images/x.sqsh; wanted the name of an image"),
        ([*PODS, "--mounts", "Some Claim:/x"], "mounts: found 'Some Claim:/x'; wanted HOST:CONTAINER"),
    ],
)
def test_what_a_pod_needs_is_asked_for_in_one_line(hcp, tmp_path, words, said):
    (tmp_path / "train.sh").write_text(LAUNCH + "\n")
    done = hcp("render", "train.sh", "--target", "jobset", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and said in done.stderr
