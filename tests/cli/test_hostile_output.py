"""Values, file names and errors that come from outside, in every format that `hcp check` has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cards import skill_in

SMUGGLED = "\n::error file=a.py,line=1::x\x1b]52;c;aGk=\x07\x9b2J\b\u202e##[error]y"
LAUNCH = (
    "torchrun pretrain_gpt.py --num-layers 2 --num-attention-heads 8 --hidden-size 64 --seq-length 1000"
    " --context-parallel-size 8"
    " --softmax-type $'\\n::error file=a.py,line=1::x\\e]52;c;aGk=\\a\\x9b2J\\b\\u202e##[error]y'\n"
)
NAME = "a\n::error ::x\x1b[2J\u202e.sh"
FORMATS = ("text", "json", "sarif", "github")
SECRETS = """\
export HF_TOKEN=hunter2 DB_PASSWORD="hunter2 hunter2"
torchrun --rdzv-endpoint https://me:hunter2@host pretrain_gpt.py --context-parallel-size 8 --wandb-api-key hunter2 \\
  --save https://me:hunter2@host/x --seq-length 1000 --softmax-type https://me:hunter2@host
"""


def is_harmless(text: str, github: bool = False) -> bool:
    lines = text.split("\n")
    commands = [line for line in lines if line.lstrip().startswith("::")]
    ours = ("::error file=", "::error title=", "::warning ", "::notice ")
    return (
        all(line.isprintable() for line in lines)
        and "##[" not in text
        and all(github and line.startswith(ours) for line in commands)
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", ["launch.sh", NAME], ids=["value", "name"])
def test_a_value_and_a_name_stay_text(hcp, tmp_path: Path, fmt: str, name: str) -> None:
    (tmp_path / name).write_text(LAUNCH)
    full = ("--full",) if fmt == "json" else ()
    done = hcp("check", name, "--format", fmt, *full, "-o", f"{fmt}=out", cwd=tmp_path)
    assert done.returncode == 1 and "CP001" in done.stdout
    assert is_harmless(done.stdout, fmt == "github") and is_harmless(done.stderr)
    assert (tmp_path / "out").read_text() == done.stdout
    if fmt in ("json", "sarif"):
        json.loads(done.stdout)


def test_show_and_errors_are_harmless_too(hcp, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(LAUNCH)
    for words in (
        ("show", NAME, "--all"),
        ("show", NAME, "--format", "json"),
        ("check", SMUGGLED),
        ("check", SMUGGLED, "--format", "json"),
        ("check", "--assume", f"te={SMUGGLED}", NAME),
        ("check", "--select", SMUGGLED, NAME),
        ("check", f"--{SMUGGLED}"),
        ("check", "--format", SMUGGLED),
        (SMUGGLED,),
        ("explain", SMUGGLED),
        ("render", NAME, "--start", SMUGGLED),
    ):
        done = hcp(*words, cwd=tmp_path)
        assert done.returncode in (0, 2), (words, done.stderr)
        assert is_harmless(done.stdout) and is_harmless(done.stderr), (words, done.stdout, done.stderr)


def test_a_patch_whose_lines_would_act_is_left_out(hcp, tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(LAUNCH.replace(" --softmax", " \\\n --softmax").replace("\\e", "\x1b"))
    done = hcp("check", "launch.sh", "--select", "CP001", "--diff", cwd=tmp_path)
    assert "# CP001: no patch: " in done.stdout and "@@" not in done.stdout
    assert is_harmless(done.stdout)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", FORMATS)
def test_no_format_prints_a_secret(hcp, tmp_path: Path, fmt: str) -> None:
    (tmp_path / "launch.sh").write_text(SECRETS)
    for words in ((), ("--diff",)) if fmt in ("text", "json") else ((),):
        done = hcp("check", "launch.sh", "--format", fmt, *words, cwd=tmp_path)
        assert done.returncode == 1 and "hunter2" not in done.stdout + done.stderr, done.stdout
    if fmt in ("text", "json"):
        for option in (("--assume", "env.HF_TOKEN=hunter2"), ("--set", "env.MY_KEY=hunter2")):
            done = hcp("show", "launch.sh", "--format", fmt, *option, cwd=tmp_path)
            assert "hunter2" not in done.stdout + done.stderr, (done.stdout, done.stderr)
            assert done.stdout or done.returncode == 2, "a credential is no fact, and is refused as one"


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_no_command_about_skills_prints_a_secret_of_a_card(hcp, tmp_path: Path, fmt: str) -> None:
    secret = "ghp_" + "aB3" * 12
    skill = skill_in(tmp_path, text=f"rules: {secret}")
    (skill / "SKILL.md").write_text(f"---\nname: {secret}\ndescription: {secret}\n---\n")
    for words in (("skills", "validate"), ("skills", "show"), ("verify", "--list"), ("anchors",)):
        done = hcp(*words, skill, "--format", fmt, cwd=tmp_path)
        assert secret not in done.stdout + done.stderr, words


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("latin-1", "cp1252", "utf-8"))]
)
def test_an_encoding_that_lacks_a_letter_breaks_no_command(hcp, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "日é.sh").write_text(LAUNCH.replace("##", "日é"))
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    for words, code in (
        (("check", "日é.sh"), 1),
        (("check", "日é.sh", "--format", "json"), 1),
        (("check", "日é.sh", "--format", "sarif"), 1),
        (("check", "日é.sh", "--diff"), 1),
        (("show", "日é.sh"), 0),
        (("check", "日.sh"), 2),
        (("explain", "--all"), 0),
        (("explain", "--all", "--format", "json"), 0),
        (("--help",), 0),
        (("skills", "list"), 0),
        (("skills", "show", "hierarchical-context-parallel"), 0),
        (("groups", "--world-size", "8", "--cp", "8", "--hcp", "4,2"), 0),
        (("verify", "--list"), 0),
    ):
        command = [sys.executable, "-m", "megatron_hcp", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
        assert done.returncode == code, (words, done.stderr)
        done.stdout.decode(encoding)


@pytest.mark.slow
def test_a_name_that_is_not_utf_8_works_in_every_format(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff.sh")
    (tmp_path / name).write_text(LAUNCH)
    for fmt in FORMATS:
        out = os.fsdecode(b"out\xff")
        full = ("--full",) if fmt == "json" else ()
        command = [sys.executable, "-m", "megatron_hcp", "check", name, "--format", fmt, *full, "-o", f"{fmt}={out}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (1, b""), fmt
        assert (tmp_path / out).read_bytes() == done.stdout
        assert {
            "text": rb"a\udcff.sh:1:",
            "github": rb"file=a\udcff.sh,",
            "sarif": b'"a%FF.sh"',
            "json": rb"a\udcff.sh",
        }[fmt] in done.stdout
