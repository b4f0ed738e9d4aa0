"""The command line itself: what it loads, help, unusable input, a closed pipe, a fault of ours, an old Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = "from megatron_hcp.cli.main import main; main(['check', 'launch.yaml'])"


def loaded_by(code: str, folder: Path) -> set[str]:
    """The modules that a process has when it ends."""
    listing = "import atexit, sys; atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr)); "
    done = subprocess.run([sys.executable, "-c", listing + code], capture_output=True, text=True, cwd=folder)
    return set(done.stderr.split())


def test_a_check_loads_no_module_that_it_does_not_use(tmp_path: Path) -> None:
    """A check is over in 0.1 s: each of these takes a hundredth of it, or more."""
    (tmp_path / "launch.yaml").write_text("model: {context_parallel_size: 4}\n")
    loaded = loaded_by(CHECK, tmp_path)
    assert {"megatron_hcp.judge.engine", "megatron_hcp.launch.dialects.bridge.reading"} <= loaded
    unused = {
        "json",
        "pathlib",
        "shlex",
        "subprocess",
        "tempfile",
        "jinja2",
        "tree_sitter",
        "megatron_hcp.launch.options",
    }
    assert not unused & (loaded - loaded_by("import click, yaml", tmp_path))


def test_a_healthy_script_loads_nothing_that_words_what_upstream_refuses(root: Path, tmp_path: Path) -> None:
    check = f"from megatron_hcp.cli.main import main; main(['check', {str(root / 'examples/mlm_hcp.sbatch')!r}])"
    loaded = loaded_by(check, tmp_path)
    assert "megatron_hcp.judge.start.undecided" in loaded
    assert not loaded & {"megatron_hcp.judge.start.findings", "megatron_hcp.rules.start.citations"}


@pytest.mark.parametrize("command", [(), ("dcp",), ("skills",)])
def test_a_group_without_a_command_prints_its_help(hcp, tmp_path: Path, command: tuple[str, ...]) -> None:
    lines = hcp(*command, cwd=tmp_path).stderr.splitlines()
    assert lines[0].startswith("Usage: ") and "Commands:" in lines


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check",), "found no target"),
        (("check", "missing.yaml"), "missing.yaml"),
        (("check", "."), "found no launch in ."),
        (("check", "x", "--assume", "cp"), "NAME=VALUE"),
        (("check", "x", "--assume", "cpp=4"), "cpp"),
        (("check", "x", "--select", "NOPE001"), "NOPE001"),
        (("check", "x", "-o", "yaml=out"), "FORMAT=PATH"),
        (("check", "x", "--format", "xml"), "xml"),
        (("check", "x", "--no-such-option"), "--no-such-option"),
        (("check", "x", "--facts", "missing.json"), "missing.json"),
        (("check", "x", "--model", "missing.json"), "missing.json"),
        (("check", "x", "-o", "json=no/such/folder/out.json"), "no/such/folder"),
        (("check", "x", "--set", "model.context_parallel_size=four"), "four"),
        (("no-such-command",), "no-such-command"),
        (("explain", "HCP999"), "HCP999"),
        (("check", "x", "--site", "missing.yaml"), "missing.yaml: cannot be read"),
        (("check", "x", "--model", "missing.json"), "wanted a model's config.json"),
        (("check", "x", "--assume", "xyzzy=4"), "hcp facts --names all"),
        (("anchors", "--sources", "missing"), "wanted a folder of unpacked wheels"),
        (("render", "x", "--start", "srun", "--time", "soon"), "found 'soon'"),
        (("render", "x", "--start", "verify", "--nodes", "1"), "found the file x with --start verify"),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(hcp, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "x").write_text("model.context_parallel_size=4\n")
    done = hcp(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("chek", "no command 'chek'; did you mean check?"),
        ("dcp wieghts", "no command 'dcp wieghts'; did you mean dcp weights?"),
        ("dcp foo", "no command 'dcp foo'; wanted one of calibrate, plan, show, weights"),
        ("check --formt json", "no option '--formt'; did you mean --format?"),
        ("skills list --qqq", "no option '--qqq'; --help lists them"),
        ("plan --gpus 0", "--gpus: found '0'; wanted a whole number of at least 1"),
        ("plan --seq-length 256k", "--seq-length: found '256k'; wanted a whole number of at least 1"),
        ("verify --jobs 100", "--jobs: found '100'; wanted a whole number from 1 to 64"),
        ("groups --world-size x", "--world-size: found 'x'; wanted a whole number"),
        ("check --format yaml", "--format: found 'yaml'; wanted one of text, json, sarif, github"),
        ("completion nosh", "shell: found 'nosh'; wanted one of bash, zsh, fish"),
    ],
)
def test_a_refused_word_is_quoted_beside_what_was_wanted(hcp, words: str, said: str) -> None:
    done = hcp(*words.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"hcp: {said}\n")


def test_a_refused_word_cannot_write_to_the_terminal(hcp) -> None:
    done = hcp("plan", "--gpus", "\x1b]0;title\a")
    assert done.returncode == 2 and "\x1b" not in done.stderr and "wanted a whole number of at least 1" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m megatron_hcp explain --all | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stderr == "" and done.stdout.startswith("# ")


def test_a_fault_of_ours_has_exit_3_and_a_traceback(hcp, tmp_path: Path) -> None:
    """A broken installation: a module of hcp replaced by one that fails when it is used."""
    real = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "megatron_hcp"
    broken = tmp_path / "megatron_hcp"
    (broken / "cli" / "machine").mkdir(parents=True)
    (broken / "__init__.py").write_text(
        f"from pathlib import Path\n__path__ = [str(Path(__file__).parent), {str(real)!r}]\n__version__ = 'broken'\n"
    )
    (broken / "cli" / "__init__.py").write_text("")
    for name in ("main.py", "screen.py", "streams.py", "usage.py", "declare.py"):
        (broken / "cli" / name).write_text((real / "cli" / name).read_text())
    facts = "import click\n@click.command()\ndef facts():\n    assert False, 'odd'\n"
    (broken / "cli" / "machine" / "facts.py").write_text(facts)
    done = hcp("facts", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 3
    assert "AssertionError: odd" in done.stderr and "this is a bug in hcp" in done.stderr


def test_an_old_python_gets_one_line(tmp_path: Path, root: Path) -> None:
    """The guard itself, run with the version of an older Python: such a Python need not be on this machine."""
    code = (
        "import sys; sys.version_info = (3, 9, 18); sys.version = '3.9.18 (main)'; "
        f"sys.path.insert(0, {str(root / 'src')!r}); import megatron_hcp"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hcp: found Python 3.9.18; wanted 3.10 or newer; run it with a newer python3\n"
