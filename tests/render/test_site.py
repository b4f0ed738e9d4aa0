"""A job's site: by file and by option, with what is missing or wrong said in one line."""

import os

import pytest

from support.rendering import refused


def test_everything_that_is_missing_is_listed_at_once(hcp):
    said = refused(hcp, "--start", "srun", "--requeue", "2", "--", "--context-parallel-size", "2")
    for name in ("nodes", "gpus_per_node", "program", "checkpoint_dir"):
        assert f"{name} (" in said


@pytest.mark.slow
def test_what_is_assumed_is_an_option_or_a_fact_of_the_site(hcp):
    start = ["--start", "srun", "--nodes", "1", "--gpus-per-node", "8", "--time", "30", "--program", "x.py"]
    words = ["--", "--context-parallel-size", "2"]
    assert "note: CUDA_DEVICE_MAX_CONNECTIONS=1: arch is not stated" in hcp("render", *start, *words).stderr
    said = [
        hcp("render", *start, *facts, *words).stdout
        for facts in (
            ["--arch", "sm90", "--facts", "te=2.14", "--facts", "mcore=0.16.1"],
            ["--assume", "arch=sm90", "te=2.14", "mcore=0.16.1"],
            ["--arch", "sm90", "--assume", "te=2.14", "arch=sm100", "mcore=0.16.1"],
        )
    ]
    assert said[0].startswith("#!/bin/bash") and said[1:] == said[:1] * 2


def test_an_unknown_site_key_is_an_error_with_a_suggestion(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpu_per_node: 8\n")
    said = refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "gpu_per_node" in said and "did you mean gpus_per_node?" in said


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus_per_node: many", "whole number"),
        ("time: soon", "time limit"),
        ("- a", "keys and values"),
        ("a: [", "YAML"),
        ("exclusive: maybe", "true or false"),
        ("gpu_request: all", "gpus-per-node or gres or none"),
        ("env: [a]", "NAME=VALUE"),
        ("env: {a b: c}", "names of letters"),
        ("account: a b", "one plain word"),
        ('partition: "x\\n#SBATCH --uid=0"', "one plain word"),
        ("mounts: /data", "a list"),
        ("ft_timeouts: step", "SECTION:SECONDS"),
    ],
)
def test_a_site_value_of_another_type_is_refused(hcp, tmp_path, text, words):
    (tmp_path / "site.yaml").write_text(text + "\n")
    said = refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "site.yaml" in said and words in said


def test_an_option_wins_over_the_site_file_and_env_is_merged(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpus_per_node: 8\ntime: 4:00:00\nenv: {A: 1, B: 2}\n")
    done = hcp(
        "render",
        "--start",
        "srun",
        "--nodes",
        "2",
        "--site",
        "site.yaml",
        "--time",
        "30",
        "--env",
        "B=3",
        "--program",
        "x.py",
        "--",
        "--tensor-model-parallel-size",
        "1",
        cwd=tmp_path,
    )
    assert "#SBATCH --time=30  # --time\n" in done.stdout and "--gpus-per-node=8  # site.yaml\n" in done.stdout
    assert (
        "# site.yaml\nexport A=1\n" in done.stdout
        and "# --env\nexport B=3\n" in done.stdout
        and "B=2" not in done.stdout
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time", "10", "--signal", "600"], "the trainer is stopped at once"),
        (["--time", "30", "--env", "MASTER_ADDR=x"], "set by the job itself"),
        (["--time", "30", "--env", "BASH_ENV=x"], "set by the job itself"),
        (["--time", "30", "--mounts", "/data"], "container_image"),
        (
            ["--time", "30", "--container-image", "x"],
            "wanted --container-runtime, or in the site file container_runtime:",
        ),
        (["--time", "30", "--logs", "my logs"], "plain characters"),
        (["--time", "30", "--logs", "-x"], "plain characters"),
    ],
)
def test_what_would_not_work_is_refused(hcp, words, said):
    assert said in refused(
        hcp,
        "--start",
        "srun",
        "--nodes",
        "2",
        "--gpus-per-node",
        "8",
        "--arch",
        "sm90",
        "--program",
        "x.py",
        *words,
        "--",
        "--seq-length",
        "8",
    )


OVERLAP = (
    "--overlap-moe-expert-parallel-comm --num-experts 8 --expert-model-parallel-size 2 --bf16 "
    "--moe-token-dispatcher-type alltoall"
)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--arch", "sm90"], "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        (["--arch", "sm100"], None),
        (["--arch", "sm90", "--", OVERLAP], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (["--", OVERLAP], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (
            ["--arch", "sm90", "--", "--use-megatron-fsdp --ckpt-format fsdp_dtensor"],
            "unset CUDA_DEVICE_MAX_CONNECTIONS",
        ),
        (["--arch", "sm90", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=8"], "export CUDA_DEVICE_MAX_CONNECTIONS=8"),
    ],
)
def test_connections_follow_from_what_runs(hcp, words, line):
    options, _, launch = " ".join(words).partition("--" if words[0] == "--" else " -- ")
    done = hcp(
        "render",
        "--start",
        "srun",
        "--nodes",
        "2",
        "--gpus-per-node",
        "8",
        "--time",
        "30",
        "--program",
        "x.py",
        *options.split(),
        "--",
        "--context-parallel-size",
        "2",
        *launch.split(),
    )
    # A value that is stated wins, and is an error where Megatron-LM refuses it.
    assert done.returncode == int(line == "export CUDA_DEVICE_MAX_CONNECTIONS=8"), done.stderr
    found = [text for text in done.stdout.splitlines() if text.startswith(("export CUDA_DEV", "unset CUDA_DEV"))]
    assert found == ([line] if line else [])


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 1000000000", "site.yaml: nodes: found 1000000000; wanted a whole number from 1 to 999,999,999"),
        ("stall: 0", "site.yaml: stall: found 0; wanted a whole number from 1 to 999,999,999"),
        ("time: 2001-99-99", "site.yaml: time: found '2001-99-99'; wanted a time limit"),
        ("nodes: " + "9" * 5000, "site.yaml: nodes: found '999"),
        ("nodes: .inf\ntime: .nan", "site.yaml: nodes: found inf; wanted text or a number; time: found nan"),
        ("time: " + "1:" * 3000 + "1", "site.yaml: time: found '1:1:"),
        ("exclusive: !!bool maybe", "site.yaml: exclusive: found 'maybe'; wanted true or false"),
        ("nodes: [", "site.yaml:2:1: did not find"),
        ("modules: " + "[" * 5000, "nests more than 60 levels"),
        ("env: {A: [1]}", "site.yaml: env.A: found [1]; wanted text or a number"),
        ("facts: {te: {a: b}}", "site.yaml: facts.te: found {'a': 'b'}; wanted text or a number"),
        ("array: [1]", "site.yaml: array[0]: found 1; wanted words"),
        ("array: [[1, [2]]]", "site.yaml: array[0]: found [1, [2]]; wanted words"),
        ("modules: [{}]", "site.yaml: modules[0]: found an empty mapping; wanted text or a number"),
        ("account: [a]", "site.yaml: account: found ['a']; wanted text or a number"),
        ("5: 1", "site.yaml: 5: found an unknown key"),
        ("nodes: 1\nnodes: 2", "site.yaml:2:1: 'nodes' is written twice"),
        ("nodes: !!python/object/apply:os.getpid []", "the tag !!python/object/apply:os.getpid"),
        ('"a\\e[2J\\n::error::x": 1', r"site.yaml: a\x1b[2J\n::error::x: found an unknown key"),
        ('account: "a\\u202e"', r"site.yaml: account: found 'a\u202e'; wanted one plain word"),
        ("nodes: 1\n---\nnodes: 2", "a second YAML document starts here; wanted a site file in a file of its own"),
    ],
)
@pytest.mark.parametrize("command", [("render", "--start", "srun"), ("check",)])
def test_an_odd_site_file_is_one_clear_line(hcp, tmp_path, text, said, command):
    (tmp_path / "site.yaml").write_text(text + "\n")
    done = hcp(*command, "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert said in done.stderr and done.stderr[:-1].isprintable() and len(done.stderr) < 600


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["alias bomb", "alias chain", "merges"])
def test_a_site_file_that_grows_is_refused(hcp, tmp_path, name):
    keys = ["modules", "program", "mounts", "shared", "array", "facts", "env", "account", "partition"]
    text = {
        "alias bomb": "modules: &b0 [lol]\n"
        + "".join(f"{key}: &b{i} [{f'*b{i - 1},' * 9}]\n" for i, key in enumerate(keys[1:], 1)),
        "alias chain": "modules: &b0 [lol]\n"
        + "".join(f"{key}: &b{i} {'[' * 50}*b{i - 1}{']' * 50}\n" for i, key in enumerate(keys[1:], 1)),
        "merges": "env: &a {"
        + ",".join(f"k{i}: 1" for i in range(40_000))
        + "}\nfacts: {<<: ["
        + "*a," * 20_000
        + "]}",
    }[name]
    (tmp_path / "site.yaml").write_text(text)
    said = refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "site.yaml:" in said and ("aliases expand" in said or "values up to here" in said)


def test_a_site_file_is_neither_waited_for_nor_read_without_end(hcp, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("#" * 5_000_001)
    for path, words in (
        ("/dev/zero", "is not a regular file"),
        (".", "is not a regular file"),
        ("large", "has more than 5,000,000 bytes"),
        ("x" * 5000, "cannot be read"),
    ):
        assert words in refused(hcp, "--start", "srun", "--site", path, "--", "--seq-length", "8", cwd=tmp_path)
    done = hcp("check", "--site", "pipe", "--", "--seq-length", "8", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), "a pipe without a writer is an empty site"
