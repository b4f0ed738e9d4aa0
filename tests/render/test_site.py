"""A job's site: by file and by option, with what is missing or wrong said in one line."""

import pytest

from support.rendering import refused


def test_everything_that_is_missing_is_listed_at_once(hcp):
    said = refused(hcp, "--start", "srun", "--requeue", "2", "--", "--context-parallel-size", "2")
    for name in ("nodes", "gpus_per_node", "time", "program", "arch", "checkpoint_dir"):
        assert f"{name} (" in said


def test_an_unknown_site_key_is_an_error_with_a_suggestion(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpu_per_node: 8\n")
    said = refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "gpu_per_node" in said and "did you mean gpus_per_node?" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus_per_node: many", "whole number"),
        ("time: soon", "time limit"),
        ("- a", "mapping"),
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
        "--seq-length",
        "8",
        cwd=tmp_path,
    )
    assert "#SBATCH --time=30\n" in done.stdout
    assert "export A=1\n" in done.stdout and "export B=3\n" in done.stdout and "B=2" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time", "10", "--signal", "600"], "asked to end at once"),
        (["--time", "30", "--env", "MASTER_ADDR=x"], "set by the job itself"),
        (["--time", "30", "--env", "BASH_ENV=x"], "set by the job itself"),
        (["--time", "30", "--mounts", "/data"], "container_image"),
        (["--time", "30", "--container-image", "x"], "container_runtime together"),
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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--arch", "sm90"], "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        (["--arch", "sm100"], None),
        (["--arch", "sm90", "--", "--overlap-moe-expert-parallel-comm"], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (["--", "--overlap-moe-expert-parallel-comm"], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (["--arch", "sm90", "--", "--use-megatron-fsdp"], "unset CUDA_DEVICE_MAX_CONNECTIONS"),
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
