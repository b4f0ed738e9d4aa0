"""What the cache answers is what a check without it prints, whatever changed since; and it knows every file it read."""

from __future__ import annotations

import builtins
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_hcp.cli.options import project_of
from megatron_hcp.cli.repository.result import Asked
from megatron_hcp.cli.repository.targets import checked
from megatron_hcp.ground.asked import recording
from megatron_hcp.launch.fact import Beside
from megatron_hcp.launch.load import LoadOptions

RUN = "torchrun --nproc-per-node 8 pretrain_gpt.py $SIZES --max-position-embeddings 8192 --context-parallel-size 2\n"
FILES = {
    "jobs/a.sh": f"source common.sh\n{RUN}",
    "jobs/common.sh": 'SIZES="--seq-length 8192"\n',
    "jobs/b.sh": f"source ../shared/sizes.sh\n{RUN}",
    "shared/sizes.sh": 'SIZES="--seq-length 4097"\n',
    "jobs/missing.sh": f"source late.sh\n{RUN}",
    "jobs/other.sh": "make all\n",
    "jobs/broken.sh": "python3 pretrain_gpt.py --seq-length 'unclosed\n",
    "rl/base.yaml": "policy: {megatron_cfg: {context_parallel_size: 2}, max_total_sequence_length: 512}\n",
    "rl/grpo.yaml": "defaults: base.yaml\npolicy: {model_name: Qwen/Qwen3-8B}\ncluster: {gpus_per_node: 8}\n",
    "model/config.json": json.dumps({"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4}),
    "named/.hcp.yaml": "model: Qwen/Qwen3-8B\n",
    "named/x.sh": RUN,
    ".hcp.yaml": "facts: {arch: sm90, nvlink_domain: 8}\nmodel: model/config.json\n",
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "repo"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    return root


Change = Callable[[Path], object]
CHANGES: dict[str, Change] = {
    "the launch": lambda root: (root / "jobs/a.sh").write_text(FILES["jobs/a.sh"].replace("8192", "4096")),
    "a file that it sources": lambda root: (root / "jobs/common.sh").write_text('SIZES="--seq-length 8191"\n'),
    "one elsewhere in the repository": lambda root: (root / "shared/sizes.sh").write_text('SIZES="--seq-length 8"\n'),
    "a file that was missing": lambda root: (root / "jobs/late.sh").write_text('SIZES="--seq-length 8191"\n'),
    "a file that is gone": lambda root: (root / "jobs/common.sh").unlink(),
    "what a configuration inherits": lambda root: (root / "rl/base.yaml").write_text("policy: {}\n"),
    "the model": lambda root: (root / "model/config.json").write_text('{"num_hidden_layers": 4}'),
    "the model's place": lambda root: shutil.rmtree(root / "model"),
    "the project's facts": lambda root: (root / ".hcp.yaml").write_text("facts: {arch: sm80}\n"),
    "a mistake in them": lambda root: (root / ".hcp.yaml").write_text("fact: {arch: sm80}\n"),
    "no project file": lambda root: (root / ".hcp.yaml").unlink(),
    "a nearer one": lambda root: (root / "jobs/.hcp.yaml").write_text("ignore: [LEN, CP, BATCH]\n"),
    "a baseline": lambda root: (root / ".hcp-baseline.json").write_text('{"schema": "hcp.baseline/1", "findings": []}'),
    "a file that is a link out": lambda root: _linked(root / "jobs/common.sh", root.parent / "outside.sh"),
    "the repository's end": lambda root: shutil.move(root / ".git", root / "shared/.git"),
    "a launch that was none": lambda root: (root / "jobs/other.sh").write_text(RUN),
    "a folder named like a model": lambda root: (root / "Qwen/Qwen3-8B").mkdir(parents=True),
    "nothing": lambda root: None,
}


def _linked(path: Path, target: Path) -> None:
    target.write_text('SIZES="--seq-length 8"\n')
    path.unlink()
    path.symlink_to(target)


def _printed(hcp, root: Path, *words: str) -> tuple[int, str, str]:
    done = hcp("check", ".", *words, cwd=root)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_kept_is_printed_only_while_nothing_that_it_came_from_has_changed(hcp, repo: Path, name: str) -> None:
    form = random.Random(name).choice((("--format", "text"), ("--format", "json"), ("--format", "github")))
    _printed(hcp, repo, *form)
    CHANGES[name](repo)
    kept = _printed(hcp, repo, *form)
    assert kept == _printed(hcp, repo, *form, "--no-cache") == _printed(hcp, repo, *form)


def test_the_cache_answers_for_other_options_with_other_entries(hcp, repo: Path) -> None:
    for words in ((), ("--strict",), ("--quiet",), ("--assume", "te=2.14"), ("--select", "LEN"), ("--isolated",)):
        first = _printed(hcp, repo, *words)
        assert first == _printed(hcp, repo, *words) == _printed(hcp, repo, *words, "--no-cache")


def test_an_entry_is_really_used(hcp, repo: Path) -> None:
    _printed(hcp, repo)
    for entry in (repo.parent / "cache/hcp").glob("*.json"):
        entry.write_text(entry.read_text().replace("UNDECIDED", "SETTLED"))
    assert "SETTLED" in _printed(hcp, repo)[1]


def test_a_cache_that_cannot_be_written_changes_nothing(hcp, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = _printed(hcp, repo, "--no-cache")
    (repo.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(repo.parent / "file"))
    assert _printed(hcp, repo) == wanted


def test_an_entry_holds_no_secret(hcp, repo: Path) -> None:
    (repo / "jobs/secret.sh").write_text(f"export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789\n{RUN}")
    for form in ("text", "json", "github"):
        _printed(hcp, repo, "--format", form)
    assert not any("hf_abc" in entry.read_text() for entry in (repo.parent / "cache/hcp").iterdir())


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The absolute path of each file that Python opens, stats or follows."""
    paths: set[str] = set()

    def watched(function: Callable[..., object]) -> Callable[..., object]:
        def call(path: object, *rest: object, **named: object) -> object:
            if isinstance(path, str):
                paths.add(os.path.abspath(path))
            return function(path, *rest, **named)

        return call

    for name in ("stat", "lstat", "open", "readlink", "listdir", "scandir"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    monkeypatch.setattr(builtins, "open", watched(builtins.open))
    yield paths


def test_each_file_that_a_check_looks_at_is_recorded(repo: Path, touched: set[str]) -> None:
    """But for folders on the way, and marks of repositories, whose question is where the root is."""
    beside = Beside(sources=(str(repo / "shared"), str(repo / "jobs/late.sh")))
    for name in (name for name in FILES if name.endswith((".sh", ".yaml")) and ".hcp" not in name):
        for options in (LoadOptions(find_project=project_of), LoadOptions(find_project=project_of, beside=beside)):
            touched.clear()
            with recording() as made:
                checked([str(repo / name)], Asked(options, None, None))
            looked = {path for path in touched if path.startswith(f"{repo}/")}
            known = made.paths | {str(repo / name)}
            folders = {os.path.dirname(path) for path in known} | {
                str(repo / part) for part in ("jobs", "shared", "rl", "named", "Qwen")
            }
            marks = {path for path in looked if os.path.basename(path) in (".git", "pyproject.toml")}
            assert looked - known - folders - marks == set(), name


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("changed", "checked_again"),
    [
        ("jobs/common.sh", {"jobs/a.sh"}),
        ("shared/sizes.sh", {"jobs/b.sh"}),
        ("jobs/late.sh", {"jobs/missing.sh"}),
        ("rl/base.yaml", {"rl/grpo.yaml", "rl/base.yaml"}),
        ("jobs/other.sh", set()),
    ],
)
def test_changed_includes_launches_that_read_or_looked_for_a_changed_file(
    hcp, repo: Path, changed: str, checked_again: set[str]
) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@y")
    subprocess.run([*git, "add", "-A"], cwd=repo, check=True)
    subprocess.run([*git, "commit", "-qm", "x"], cwd=repo, check=True)
    (repo / changed).write_text(FILES.get(changed, "") + "\n")
    for words in ((), ("--no-cache",), ()):
        data = json.loads(_printed(hcp, repo, "--format", "json", "--changed", "HEAD", *words)[1])
        found = {item["target"]["name"] for item in data["results"]}
        assert {name for name in found if name in {*checked_again, "jobs/a.sh", "jobs/b.sh"}} == checked_again


def test_what_the_project_names_is_recorded_for_each_target(hcp, repo: Path) -> None:
    """Two names of one file are two targets; the second must not rely on what was read for the first."""
    (repo / "site.yaml").write_text("arch: sm90\n")
    (repo / ".hcp.yaml").write_text("site: site.yaml\n")
    words = ("check", "jobs/a.sh", "./jobs/a.sh", f"{repo}/jobs/a.sh")
    first = hcp(*words, cwd=repo)
    (repo / "site.yaml").write_text("arch: sm100\n")
    kept, cold = hcp(*words, cwd=repo), hcp(*words, "--no-cache", cwd=repo)
    assert (kept.stdout, kept.stderr) == (cold.stdout, cold.stderr)
    assert cold.stdout != first.stdout


def test_facts_on_standard_input_are_read_anew(hcp, repo: Path) -> None:
    words = ("check", "jobs/a.sh", "jobs/b.sh", "--facts", "/dev/stdin")
    facts = {"schema": "hcp.facts/1", "facts": {"arch": {"value": "sm90", "origin": "installed"}}}
    first = hcp(*words, cwd=repo, stdin=json.dumps(facts)).stdout
    facts["facts"] = {"arch": {"value": "sm100", "origin": "installed"}}
    second = hcp(*words, cwd=repo, stdin=json.dumps(facts))
    assert second.stdout == hcp(*words, "--no-cache", cwd=repo, stdin=json.dumps(facts)).stdout != first
