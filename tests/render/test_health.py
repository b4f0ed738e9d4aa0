"""Checks of a node's health: what follows from what the nodes answer, and what the known checks take for unfit."""

import subprocess

import pytest

from megatron_hcp.job.health import judge, read_answers
from megatron_hcp.render.health import KNOWN, HealthCheck, health_checks, main


def answers(*lines):
    return read_answers("\t".join(line.split("|")) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "unfit", "words"),
    [
        (["n1|dcgm|0|ok", "n2|dcgm|0|ok"], [], []),
        (["n1|dcgm|0|ok", "n2|dcgm|1|GPU 3: Fail"], ["n2"], ["dcgm: n2 is unfit (exit code 1): GPU 3: Fail"]),
        (["n1|a|1|x", "n2|a|0|", "n1|b|9|y", "n2|b|9|z"], ["n1", "n2"], ["a: n1 is", "b: n1 is", "b: n2 is"]),
        # What could not run says nothing about its node, and is not passed either.
        (["n1|dcgm|127|", "n2|dcgm|126|denied"], [], ["dcgm could not run on n1: no such command", "on n2: denied"]),
        (["n1|dcgm|0|ok"], [], ["dcgm: 1 of 2 nodes answered"]),
        (["Welcome to n1"], [], ["none of 2 nodes answered"]),
    ],
)
def test_what_the_nodes_answer_decides_who_is_unfit(lines, unfit, words):
    problems, nodes = judge(answers(*lines), 2)
    assert nodes == unfit and len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True)), problems


def test_the_program_prints_the_unfit_nodes_and_says_why(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", iter(["n1\tdcgm\t0\tok\n", "n2\tdcgm\t3\tGPU 1\n"]))
    assert main(["--nodes", "2"]) == 1
    said = capsys.readouterr()
    assert said.out == "n2\n" and said.err == "hcp health: dcgm: n2 is unfit (exit code 3): GPU 1\n"


def test_a_name_that_is_known_is_its_check_and_anything_else_a_command():
    assert health_checks([("dcgm",), ("/site/check", "-q"), ("dcgm", "--mine")]) == (
        KNOWN["dcgm"],
        HealthCheck("/site/check", ("/site/check", "-q")),
        HealthCheck("dcgm", ("dcgm", "--mine")),
    )


NVIDIA_SMI = """#!/bin/bash
case "$*" in
    *ecc.errors.uncorrected.volatile.total*) printf '%s\n' {ecc} ;;
    *remapped_rows.pending,remapped_rows.failure*) printf '%s\n' {rows} ;;
    *) exit 2 ;;
esac
exit {code}
"""


@pytest.mark.parametrize(
    ("ecc", "rows", "code", "ended", "said"),
    [
        ("'0, 0' '1, 0'", "'00:1, 0, 0' '00:2, 0, 0'", 0, 0, ""),
        ("'0, 0' '1, 0'", "'00:1, No, No' '00:2, No, No'", 0, 0, ""),
        ("'0, [N/A]'", "'00:1, [N/A], [N/A]'", 0, 0, ""),
        ("'0, 0' '1, 7'", "'00:1, 0, 0'", 0, 1, "GPU 1 has 7 uncorrected ECC errors"),
        ("'0, 0'", "'00:1, 0, 0' '00:2, 1, 0'", 0, 1, "GPU 00:2 has memory rows"),
        ("'0, 0'", "'00:1, No, Yes'", 0, 1, "GPU 00:1 has memory rows"),
        ("'0, 0'", "'00:1, 0, 0'", 9, 9, ""),  # the driver does not answer
    ],
)
def test_nvidia_smi_is_read_as_it_prints(tmp_path, ecc, rows, code, ended, said):
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(ecc=ecc, rows=rows, code=code))
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(KNOWN["nvidia-smi"].words, env=path, capture_output=True, text=True)
    assert (done.returncode, said in done.stdout, bool(done.stdout)) == (ended, True, bool(said)), done


@pytest.mark.parametrize("name", ["nvidia-smi", "primus"])
def test_a_check_that_is_not_installed_says_so_and_passes_nothing(name, tmp_path):
    (tmp_path / "bash").symlink_to("/bin/bash")
    done = subprocess.run(KNOWN[name].words, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 127, done


def test_primus_checks_one_node_and_leaves_nothing(tmp_path):
    program = tmp_path / "primus-cli"
    program.write_text(f'#!/bin/bash\nenv | grep -c ^SLURM_ >{tmp_path}/seen\necho "$@" >>{tmp_path}/seen\nexit 1\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(KNOWN["primus"].words, env=environment, capture_output=True, text=True)
    count, words = (tmp_path / "seen").read_text().splitlines()
    assert done.returncode == 1 and count == "0" and words.startswith("direct -- node_smoke --dump-path ")
    assert not list(tmp_path.glob("tmp.*"))
