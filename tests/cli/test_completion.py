"""Completion as a person sees it: real shells, a line, the TAB key, and the line that stands there after it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import click
import pytest

from megatron_hcp.cli.completion import complete_rules
from megatron_hcp.cli.explain.command import explain
from megatron_hcp.rules.registry import RULES
from support.processes import HANG_S

LINES = {
    "hcp expl": "hcp explain",
    "hcp dcp pl": "hcp dcp plan",
    "hcp explain hcp02": "hcp explain HCP02",
    "hcp verify hier": "hcp verify hierarchical-context-parallel",
    "hcp verify hierarchical-context-parallel:stale": "hcp verify hierarchical-context-parallel:stale-groups",
    "hcp check --format gi": "hcp check --format github",
    "hcp check --format=gi": "hcp check --format=github",
    "hcp check laun": "hcp check launch.sh",
    "hcp check --model mod": "hcp check --model model.json",
    "hcp check --model=mod": "hcp check --model=model.json",
}
SAME_CASE = {line: completed for line, completed in LINES.items() if "hcp02" not in line}
"""fish and zsh keep what was typed where several rules follow it."""
CONTEXT = click.Context(explain)
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": "bind 'set enable-bracketed-paste off'; PS1='rea''dy> '; eval \"$(hcp completion bash)\"\n",
    "zsh": "unset zle_bracketed_paste; autoload -U compinit; compinit -D; "
    "eval \"$(hcp completion zsh)\"; PS1='rea''dy> '; unsetopt prompt_sp; bindkey -e\n",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files, and `hcp` on the PATH."""
    program = tmp_path / "bin" / "hcp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m megatron_hcp "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "launch.sh").touch()
    (folder / "model.json").touch()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def completed_by(shell: str, lines: list[str], place: Path) -> list[str]:
    """What each line is after the TAB key: Ctrl-A puts `echo` before it, so that the shell prints it."""
    pid, keys = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execvp(START[shell][0], START[shell])

    def read_until(pattern: str) -> str:
        text = ""
        while not re.search(pattern, text):
            assert select.select([keys], [], [], HANG_S)[0], text
            text += os.read(keys, 4096).decode(errors="replace")
        return text

    try:
        os.write(keys, SET_UP[shell].encode())
        read_until("ready> $|ready> \x1b[^\r\n]*$")
        found = []
        for number, line in enumerate(lines):
            os.write(keys, f"{line}\t\x01echo {number}@ \x05 @end\n".encode())
            shown = read_until(rf"\n{number}@ [^\r\n]*@end\r*\n")
            found.append(re.findall(rf"\n{number}@ ([^\r\n]*?) +@end\r*\n", shown)[-1])
        return found
    finally:
        os.close(keys)
        os.waitpid(pid, 0)


@pytest.mark.slow
def test_bash_completes_what_is_typed(place: Path) -> None:
    assert dict(zip(LINES, completed_by("bash", list(LINES), place))) == LINES


@pytest.mark.slow
@pytest.mark.shells
def test_zsh_completes_what_is_typed(place: Path) -> None:
    assert dict(zip(SAME_CASE, completed_by("zsh", list(SAME_CASE), place))) == SAME_CASE


@pytest.mark.slow
@pytest.mark.shells
def test_fish_completes_what_is_typed(place: Path) -> None:
    asks = "\n".join(f"echo '@{line}'; complete -C '{line}'" for line in LINES)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"hcp completion fish | source\n{asks}"],
        cwd=place, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    offered = {block.split("\n")[0]: block.split("\n")[1:] for block in done.stdout.split("@")[1:]}
    for line, completed in LINES.items():
        words = [each.partition("\t")[0] for each in offered[line] if each]
        wanted = completed.rpartition(" ")[2]
        # One word, or several that begin so.
        assert words and all(word.startswith(wanted) for word in words) and (wanted in words) == (len(words) == 1)


def test_every_rule_is_offered_by_its_id(hcp) -> None:
    offered = complete_rules(CONTEXT, explain.params[0], "")
    assert [item.value for item in offered] == [rule.id for rule in RULES]


@pytest.mark.sample(3)
@pytest.mark.parametrize("line", ["hcp ", "hcp explain HCP", "hcp verify hier", "hcp check --", "hcp verify hier:"])
def test_no_rule_is_imported_while_a_word_is_completed(hcp, line: str) -> None:
    asked = {"_HCP_COMPLETE": "bash_complete", "HCP_LINE": line, "HCP_BREAKS": ":=", "PYTHONVERBOSE": "1"}
    imported = set(re.findall(r"^import '(megatron_hcp\.rules\.\S+)'", hcp(env=asked).stderr, re.M))
    families = {name for rule in RULES if (name := rule.table or rule.check.__module__)}
    assert families and imported.isdisjoint(families), imported & families


def test_a_shell_that_is_not_known_is_one_line(hcp) -> None:
    done = hcp("completion", "tcsh")
    assert done.returncode == 2 and "bash, zsh, fish" in done.stderr and len(done.stderr.splitlines()) == 1
