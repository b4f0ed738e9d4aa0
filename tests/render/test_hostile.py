"""Values that a shell could take for code: they arrive in the job unchanged, or are refused; none is ever evaluated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.render.job import plan_job
from megatron_hcp.render.script import render_job
from megatron_hcp.render.site import KEYS, load_site
from support.processes import HANG_S
from support.rows import rows
from support.selection import examples

HOSTILE = [
    "a b",
    "it's",
    'say "hi"',
    "$(touch PWNED)",
    "`touch PWNED`",
    "two\nlines",
    "\n",
    "-rf",
    "--x",
    "é中🚀",
    "x" * 90_000,
    "${HOME}",
    "$HOME",
    "a\\",
    "\\\n",
    "*",
    "~",
    "#",
    "'",
    '"',
    "!!",
    "a;touch PWNED",
    "a&&b",
    "{% raw %}",
    "{{ 1 }}",
    "\t",
    "a\rb",
    "=",
    "]]",
    "$'\\x41'",
    "%s",
    "\x1b[0m",
    "\u2028",
    "'\"'\"'",
]
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
VALUES = st.one_of(st.sampled_from(HOSTILE), st.text(CHARACTERS, min_size=1, max_size=60))
BASE = {"nodes": "2", "gpus_per_node": "2", "time": "30", "signal": "60", "arch": "sm90", "gpu_request": "none"}
STUBS = """
scontrol() {
    case "$1 $2" in "show hostnames") printf 'n1\\nn2\\n' ;; *) echo "NodeName=n1 NodeAddr=127.0.0.1 X=1" ;; esac
}
"""
PRINT = """
import json, os, sys
print(json.dumps({"environment": dict(os.environ), "words": sys.argv[1:]}))
"""


def _script(env=(), words=(), **site):
    launch = load_launch("", LoadOptions(dialect="mlm", words=("--seq-length", "8", *words)))
    values = load_site(None, {**BASE, "program": ("x.py",), "env": tuple(env), **site})
    return render_job(plan_job("srun", values, launch, ("--seq-length", "8", *words)))


def _arrives(script, folder, after=""):
    """Runs the script's own environment phase and definitions, then prints what a program would get."""
    begin, rest = script.split("# ---- one start")[0], 'exec "$the_python" -c "$the_program" '
    text = begin.replace("\nset -euo pipefail\n", "\nset -euo pipefail\n" + STUBS, 1) + rest + after
    path = folder / "phase.sh"
    path.write_text(text)
    done = subprocess.run(
        ["bash", path],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_NAME": "j",
            "SLURM_JOB_NUM_NODES": "2",
            "the_python": sys.executable,
            "the_program": PRINT,
            "LC_ALL": "C.UTF-8",
        },
    )
    assert done.returncode == 0, done.stderr
    import json

    assert not (folder / "PWNED").exists()
    return json.loads(done.stdout)


quiet = settings(max_examples=examples(quick=10, full=60), suppress_health_check=[HealthCheck.function_scoped_fixture])


@quiet
@given(st.lists(VALUES, min_size=1, max_size=5))
@example(HOSTILE[:11])
@example(HOSTILE[11:])
def test_variables_arrive_unchanged(tmp_path, values):
    names = [f"VALUE_{n}" for n in range(len(values))]
    found = _arrives(_script(env=[f"{name}={value}" for name, value in zip(names, values)]), tmp_path)
    assert {name: found["environment"][name] for name in names} == dict(zip(names, values))


@pytest.mark.slow
@quiet
@given(st.lists(VALUES, min_size=1, max_size=5))
@example(HOSTILE[:11])
@example(HOSTILE[11:])
def test_words_of_the_launch_arrive_unchanged(tmp_path, values):
    # A value that begins with -- and a letter is a flag of its own: then the words are the same, in the same order.
    words = [word for number, value in enumerate(values) for word in (f"--note-{number}", value)]
    found = _arrives(_script(words=words), tmp_path, '"${launch[@]}"')
    assert found["words"] == ["--seq-length", "8", *words]


@pytest.mark.slow
@quiet
@given(VALUES)
def test_words_of_an_array_and_of_the_program_arrive_unchanged(tmp_path, value):
    script = _script(program=("x.py", value), array=[[value, "b"]])
    script = script.replace("case $SLURM_ARRAY_TASK_ID in", "case 0 in")
    found = _arrives(script, tmp_path, '"${program[@]:1}" "${launch[@]}"')
    assert found["words"] == ["x.py", value, "--seq-length", "8", value, "b"]


@pytest.mark.slow
@quiet
@given(VALUES)
def test_paths_arrive_unchanged(tmp_path, value):
    paths = {
        "python": value,
        "venv": value,
        "checkpoint_dir": value,
        "requeue": "1",
        "container_runtime": "pyxis",
        "container_image": value,
        "container_workdir": value,
        "mounts": [value],
    }
    if len(value.encode()) > 4096:
        with pytest.raises(HcpError, match="at most 4,096 bytes"):
            _script(**paths)
        return
    script = _script(**paths) if "," not in value else _script(python=value)
    found = _arrives(script, tmp_path, '"$python" "${VIRTUAL_ENV-}" "${container[@]}"')
    assert found["words"][0] == value
    if "," not in value:
        mount = value if ":" in value else f"{value}:{value}"
        assert found["words"][1] == value and f"--container-image={value}" in found["words"]
        assert f"--container-mounts={mount},{tmp_path}:{tmp_path}" in found["words"]


@pytest.mark.slow
@quiet
@given(VALUES)
def test_shared_folders_reach_the_program_that_looks_for_them(tmp_path, value):
    value = value[:1000]
    script = _script(shared=[value])
    begins = script.index('cat >"$run/job.json"')
    path = tmp_path / "command.sh"
    path.write_text(script[begins : script.index("\nHCP_JOB\n") + 9], encoding="utf-8")
    subprocess.run(["bash", path], check=True, timeout=HANG_S, env={"PATH": os.environ["PATH"], "run": str(tmp_path)})
    assert json.loads((tmp_path / "job.json").read_text(encoding="utf-8"))["shared"] == [value]
    assert all(character.isprintable() or character == "\n" for character in path.read_text(encoding="utf-8"))


@pytest.mark.slow
@rows("value", HOSTILE)
@rows("key", [key for key in KEYS if key.type in ("word", "name", "size", "count", "time", "choice", "timeouts")])
def test_a_directive_is_plain_or_refused(key, value):
    try:
        script = _script(**{key.name: value})
    except HcpError as error:
        assert key.name.replace("_", "-") in str(error) or key.name in str(error)
        return
    assert value in ("*", "=", "%s", "é中🚀") or key.type == "word", (key, value)
    lines = [line.partition("  # ")[0] for line in script.splitlines() if line.startswith("#SBATCH") and value in line]
    assert all(character.isprintable() and not character.isspace() for line in lines for character in line[8:])


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 200_000])
def test_what_no_quoting_can_carry_is_refused(value):
    for attempt in ({"env": [f"A={value}"]}, {"words": ["--note", value]}, {"python": value}):
        with pytest.raises(HcpError, match="wanted"):
            _script(**attempt)


def test_the_property_would_notice_a_value_without_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr("megatron_hcp.render.shell_words.shlex.quote", lambda value: value)
    script = _script(env=["A=$HOME/x"])
    with pytest.raises((AssertionError, KeyError)):
        assert _arrives(script, tmp_path)["environment"]["A"] == "$HOME/x"


def test_directives_end_where_the_script_begins(tmp_path):
    script = _script(env=["A=\n#SBATCH --uid=0\n"])
    header = script.split("set -euo pipefail")[0]
    # sbatch reads directives only up to the first command.
    assert "--uid" not in header and Path(__file__).exists()
