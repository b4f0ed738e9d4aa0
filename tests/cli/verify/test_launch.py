"""`hcp verify --launch`: the small launch runs, and what differs, fails or hangs is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.cli.verify.launch import Ask, Parity, parity_json, parity_lines
from megatron_hcp.core.parity import tiny_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.resources import pack_dir

BRIDGE = "examples/bridge_hcp.yaml"
FORGOTTEN = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8 --cp-comm-type a2a+p2p --num-layers 4 "
    "--hidden-size 512 --num-attention-heads 16 --group-query-attention --num-query-groups 8 --seq-length 4096 "
    "--max-position-embeddings 4096 --micro-batch-size 1\n"
)
ON_REFERENCE = ("--attention", "reference", "--steps", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--launch", "nope.sh"), "nope.sh does not exist"),
        (("--launch", "examples/verl_dcp.yaml"), "found cp=1"),
        (("--launch", BRIDGE, "--processes", "3"), "--processes: found 3"),
        (("--launch", BRIDGE, "some-skill"), "found some-skill with --launch"),
        (("--assume", "te=2.14"), "found an option of a launch without --launch"),
        (("--launch", BRIDGE, "--spec-out", "no/such/folder.json"), "--spec-out no/such/folder.json"),
    ],
)
def test_what_cannot_be_used_is_one_line(hcp, root: Path, words, said) -> None:
    done = hcp("verify", *words, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_the_small_launch_is_written_for_torchrun(hcp, root: Path, tmp_path: Path) -> None:
    spec = tmp_path / "parity.json"
    done = hcp("verify", "--launch", BRIDGE, "--spec-out", str(spec), "--attention", "transformer-engine", cwd=root)
    assert done.returncode == 0, done.stderr
    assert json.loads(spec.read_text())["precision"] == "bfloat16"
    assert done.stdout.startswith("torchrun --nproc-per-node 4 ") and f"--spec {spec}" in done.stdout


def shown(root: Path, report: dict, error: str | None) -> tuple[list[str], dict]:
    launch = load_launch(str(root / BRIDGE), LoadOptions())
    plan = tiny_launch({name: fact.value for name, fact in launch.facts.items()}, 4, "float64")
    ask = Ask(BRIDGE, 4, None, 1, 300, None)
    parity = Parity(plan, "reference", report, error)
    data = json.loads(json.dumps(parity_json(ask, launch, parity)))
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((pack_dir("schemas") / "hcp.parity.1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    return list(parity_lines(ask, launch, parity)), data


def result(name: str, measured: float, ok: bool) -> dict:
    return {"name": name, "ok": ok, "detail": "", "measured": measured, "bound": 1e-14}


def test_the_first_module_that_differs_is_named_in_eighty_columns(root: Path) -> None:
    module = "decoder.layers.0.self_attention.core_attention"
    results = [
        result("forward embedding", 0.0, True),
        result(f"forward {module}", 1.3, False),
        result("step 1: loss", float("nan"), False),
    ]
    lines, data = shown(root, {"results": results, "versions": {"torch": "2.13"}, "seconds": 1.0}, None)
    assert (data["verdict"], data["first"]["phase"], data["first"]["module"]) == ("different", "forward", module)
    assert data["different"][1] == {"phase": "step 1", "module": "loss", "error": None, "tolerance": 1e-14}
    assert module in " ".join(lines) and "2 of 3 comparisons differ" in " ".join(lines)
    commands = [line for line in lines if "torchrun" in line or "hcp verify" in line]
    assert len(commands) == 2 and max(len(line) for line in lines if line not in commands) <= 80


def test_what_upstream_refuses_is_no_pass(root: Path) -> None:
    lines, data = shown(root, {"results": [], "versions": {}, "seconds": 1.0}, "RuntimeError: CP 4: in x: No backend")
    assert (data["verdict"], data["ok"]) == ("failed", False)
    assert "No backend" in lines[0]


def sweep(*sizes: int, comm: str = "p2p") -> str:
    """A script that trains once for each CP size."""
    return "\n".join(
        f"torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size {cp} --cp-comm-type {comm} "
        "--num-attention-heads 16 --num-layers 4 --hidden-size 512 --seq-length 4096"
        for cp in sizes
    )


def test_of_a_sweep_the_commands_with_context_parallelism_count(hcp, tmp_path: Path) -> None:
    """CP 4 and 8 are both 4 on four processes; 2 and 4 differ; 1 has nothing to compare."""
    script, spec = tmp_path / "train.sh", tmp_path / "parity.json"
    words = ("verify", "--launch", script, "--spec-out", spec, "--attention", "reference")
    script.write_text(sweep(1, 4, 8))
    done = hcp(*words)
    assert (done.returncode, json.loads(spec.read_text())["cp"]) == (0, 4), done.stderr
    for sizes, said in (((1, 2, 4), "context parallelism differs"), ((1, 1), "found cp=1")):
        script.write_text(sweep(*sizes))
        done = hcp(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert said in done.stderr, done.stderr


@pytest.mark.torch
@pytest.mark.slow
def test_a_launch_that_is_right_is_the_same_and_one_that_forgets_its_sizes_is_not(hcp, root: Path, tmp_path: Path):
    done = hcp("verify", "--launch", BRIDGE, *ON_REFERENCE, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("same ") and "upstream's did not run" in " ".join(done.stdout.split())
    script = tmp_path / "train.sh"
    script.write_text(FORGOTTEN)
    done = hcp("verify", "--launch", str(script), *ON_REFERENCE, "--format", "json", cwd=root)
    assert done.returncode == 1, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["first"]["module"] == "decoder.layers.0.self_attention.core_attention"
    assert data["first"]["error"] > 0.1


def test_a_skipped_step_fails_where_strict_is_asked_for(hcp, tmp_path: Path) -> None:
    from support.cards import skill_in, step

    skill = skill_in(tmp_path, step(), step(id="other", needs={"packages": ["nowhere"]}))
    assert hcp("verify", "--trust", skill).returncode == 0
    done = hcp("verify", "--trust", "--strict", skill)
    assert (done.returncode, "--strict" in done.stdout) == (1, True), done.stdout


@pytest.mark.parametrize("words", [("--executor", "slurm"), ("--submit-with", "time=3")])
def test_a_launch_is_compared_on_this_machine_alone(hcp, words: tuple[str, str]) -> None:
    done = hcp("verify", "--launch", "x.sbatch", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hcp: found {words[0]} with --launch; wanted one of them; leave one out\n"
