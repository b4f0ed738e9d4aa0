"""`python -m megatron_hcp` in a folder whose files are called like modules: none of them is imported."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.processes import HANG_S

TAKEN = (
    *("click", "yaml", "jinja2", "packaging", "tree_sitter", "tree_sitter_bash", "markupsafe"),
    *("json", "argparse", "shlex", "gc", "atexit", "typing", "dataclasses", "tempfile", "difflib", "traceback"),
    *("subprocess", "socket", "threading", "inspect", "shutil", "gettext", "importlib.metadata"),
)
LAUNCH = ("--", "--context-parallel-size", "2", "--seq-length", "8192")


@pytest.fixture
def hostile(tmp_path):
    """A folder in which every import would leave a trace."""
    for name in TAKEN:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'IMPORTED')!r}, 'a').write({name + ' '!r})\n")
    (tmp_path / "importlib").rename(tmp_path / "not_importlib")  # Python itself imports importlib before hcp runs
    return tmp_path


def _run(folder, *words, path=None):
    env = {**os.environ, **({} if path is None else {"PYTHONPATH": path})}
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S, env=env)
    assert not (folder / "IMPORTED").exists(), (folder / "IMPORTED").read_text()
    return done


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("check", *LAUNCH),
        ("check", "--format", "sarif", *LAUNCH),
        ("facts",),
        ("groups", "--world-size", "8", "--cp", "2", "--svg", "x.svg"),
        ("triage", "nowhere.log"),
        ("skills", "list"),
    ],
    ids=" ".join,
)
def test_nothing_is_imported_from_the_current_folder(hostile, words):
    done = _run(hostile, "-m", "megatron_hcp", *words)
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, done.stderr


def test_an_empty_entry_of_the_path_means_the_current_folder_and_is_left_out(hostile):
    source = os.environ["PYTHONPATH"].split(os.pathsep)[0]
    for path in (f"{os.pathsep}{source}", f"{source}{os.pathsep}", f".{os.pathsep}{source}"):
        assert _run(hostile, "-m", "megatron_hcp", "--version", path=path).returncode == 0


def test_hcp_is_found_through_a_relative_entry_and_in_the_current_folder_itself(root):
    for folder, path in ((root, "src"), (root / "src", ""), (root / "tests", "../src")):
        done = _run(folder, "-m", "megatron_hcp", "--version", path=path)
        assert done.returncode == 0 and done.stdout.startswith("hcp"), done.stderr


def test_a_current_folder_that_was_removed_is_no_fault(tmp_path):
    done = subprocess.run(
        ["bash", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m megatron_hcp --version', sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0 and done.stdout.startswith("hcp"), done.stderr


def test_a_package_in_an_archive_is_one_clear_line(root, tmp_path):
    """As zipapp packs it: tables and programs of the pack are files."""
    with zipfile.ZipFile(tmp_path / "hcp.pyz", "w") as archive:
        archive.writestr("__main__.py", "from megatron_hcp.__main__ import start\nstart()\n")
        for name in ("__init__.py", "__main__.py"):
            archive.write(Path(root, "src/megatron_hcp", name), f"megatron_hcp/{name}")
    # -S: an installed package is not found instead.
    words = [sys.executable, "-S", tmp_path / "hcp.pyz", "explain", "HCP001"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, env={})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hcp: found its own files in an archive; wanted them in a folder; install it with pip\n"


def test_main_imports_nothing_before_the_current_folder_is_left_out(root):
    """Even `from __future__ import …` imports a module of that name."""
    text = Path(root, "src/megatron_hcp/__main__.py").read_text()
    before = text[: text.index("_leave_out_current_folder()\n    start")]
    imports = [line for line in before.splitlines() if line.startswith(("import ", "from "))]
    assert [line.split()[1] for line in imports] == ["os", "sys"]
    assert "import" not in Path(root, "src/megatron_hcp/__init__.py").read_text().replace("import sys\n", "")
