"""The way through a script: what is handed in, what it makes of branches and loops, and where it ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.statements import STATEMENTS
from megatron_hcp.bash.value import Field, Items, Lit, ScriptText, Span, Value, text_of
from megatron_hcp.bash.walker import MAX_STEPS, Prefix, Status, Walker
from support.rows import rows
from support.shell import followed


def texts(items: Items) -> list[str | None]:
    return [item.text if isinstance(item, Field) else None for item in items]


def commands(script: str) -> list[list[str | None]]:
    return [texts(items) for items in followed(script)[1]]


def test_the_caller_sees_each_command_that_is_not_the_shells_own() -> None:
    script = "cd x; A=1\nf() { two $1; }\none $A && f 3\neval 'four 5'\necho six"
    assert commands(script) == [["one", "1"], ["two", "3"], ["four", "5"]]


def test_the_caller_gets_the_assignments_in_front_of_a_command() -> None:
    seen: list[dict[str, str | None]] = []

    def on_command(walker: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        seen.append({name: text_of(value or ()) for name, (value, _) in prefix.items()})
        return True

    def preset(name: str, span: Span) -> Value | None:
        return (Lit("7", span, False),) if name == "JOB" else None

    script = parse(ScriptText(b"A=1 B=x$JOB C=(1 $JOB) run && D=2 run || run", "x.sh"))
    Walker(script, STATEMENTS, on_command, preset).walk()
    assert seen == [{"A": "1", "B": "x7", "C": "(1 7)"}, {"D": "2"}]


@pytest.mark.parametrize("end", ["exit 1", "die() { exit 1; }; die"])
def test_a_branch_that_ends_the_script_counts_only_after_a_command_was_found(end: str) -> None:
    assert commands(f"A=1\nif true; then A=2; {end}; fi\nrun $A") == [["run", "1"]]
    assert commands(f"A=1\nif true; then run; A=2; {end}; fi\nrun $A") == [["run"]]


def test_functions_that_are_not_called_are_followed_where_nothing_else_is_found() -> None:
    assert commands("f() { run 1; }") == [["run", "1"]]
    assert commands("f() { run 1; }\nrun 2") == [["run", "2"]]


SETTING = [
    "A=2",
    "A+=2",
    "A=2 B=3",
    "A=(2)",
    "A[0]=2",
    "export A=2",
    "declare -x A=2",
    "read A",
    "read -r x A",
    "IFS=, read -r x A",
    "mapfile A",
    "printf -v A 2",
    "let A",
    "for A in 2 3; do :; done",
    "for ((A=2; A<4; A++)); do :; done",
    "if x; then { A=2; }; fi",
    "case $x in y) A=2 ;; esac",
    "x && A=2",
    "f() { A=2; }; f",
    "A=2 (",
]


@rows("statement", SETTING)
def test_what_a_loop_may_set_is_unknown_in_it_from_its_start(statement: str) -> None:
    first, *_ = commands(f"A=1\nwhile unknown; do\n  run $A\n  {statement}\ndone")
    assert first == ["unknown"]
    assert ["run", "1"] not in commands(f"A=1\nwhile unknown; do\n  run $A\n  {statement}\ndone")
    assert ["run", "1"] in commands(f"A=1\nwhile unknown; do\n  run $A\n  {statement.replace('A', 'Z')}\ndone")


def test_a_loop_that_waits_for_something_does_not_use_up_the_steps() -> None:
    wait = "while true; do\n" + "x=$(job)\n" * 30 + 'if [ "$x" = done ]; then return; fi\ndone\n'
    walker, found = followed(f"wait_for() {{\n{wait}}}\n" + "wait_for\n" * 10 + "run")
    assert not walker.is_cut_short and len(found) == 1


def test_output_that_is_not_wholly_known_is_unknown() -> None:
    assert commands("run $(echo 1)") == [["run", "1"]]
    assert commands("run $(echo 1; foo)") == [["run", None]]
    assert commands("run $(echo 1 > f)") == [["run", None]]
    assert commands("run $(echo 1 2> log)") == [["run", "1"]]
    assert commands("B=2\nA=$(cat <<E\n--x $B\n--y\nE\n)\nrun $A") == [["run", "--x", "2", "--y"]]
    assert commands('A="$(cat <<\'E\'\n--x $B\nE\n)"\nrun "$A"') == [["run", "--x $B"]]
    assert commands("run $(cat <<E > f\nx\nE\n)") == [["run", None]]
    assert commands("run $(cat <<E | foo\nx\nE\n)") == [["run", None]]
    assert commands("run $(echo -e 'a\\tb')") == [["run", None]]
    assert commands("run $(< f)") == [["run", None]]


def test_braces_around_an_unknown_number_are_followed() -> None:
    assert commands("for i in $(eval echo {1..$N}); do run $i; done") == [["run", None]]


def test_a_script_without_end_is_followed_to_a_line_that_is_named() -> None:
    walker, found = followed("A=1\n" * (MAX_STEPS + 5) + "run")
    assert found == [] and walker.is_cut_short
    assert list(walker.notes) == [
        f"the script is too long to follow to its end; it is read up to line {MAX_STEPS + 1}",
    ]


def inputs(script: str) -> list[str | None]:
    """What each command finds on its standard input."""
    seen: list[str | None] = []

    def on_command(walker: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        seen.append(None if walker.stdin is None else text_of(walker.stdin))
        return None

    Walker(parse(ScriptText(script.encode(), "x.sh")), STATEMENTS, on_command, lambda name, span: None).walk()
    return seen


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("cat <<E | run\n1\nE", ["1\n"]),
        ("cat <<E | tee f | run\n1\nE", ["1\n"]),
        ("echo 1 | run", ["1\n"]),
        ("A=1; printf '%s' $A | run", ["1"]),
        ("run <<E\n1\nE", ["1\n"]),
        ("run | run <<< 1", [None, "1"]),
        ("cat <<E | sed s/1/2/ | run\n1\nE", [None]),
        ("sort <<E | run\n1\nE", ["1\n", None]),
        ("cat f | run", [None]),
        ("cat f - <<E | run\n1\nE", [None]),
    ],
)
def test_a_command_finds_on_its_input_what_the_one_before_it_surely_prints(
    script: str, found: list[str | None]
) -> None:
    """As bash does; a program that changes what it reads is never run, so its output is unknown."""
    assert inputs(script)[-len(found) :] == found


@pytest.mark.parametrize("script", ["run - <<E\nx\nE", "run - <<'E'\nx\nE", "run  -  <<-E\nx\nE", "run - <<< x"])
def test_a_lone_dash_in_front_of_a_here_document_is_a_word(script: str) -> None:
    assert commands(script) == [["run", "-"]]


@pytest.mark.parametrize("name", ["9" * 4_301, "0" * 5_000 + "1"])
def test_an_argument_of_any_number_of_digits_is_looked_up(name: str) -> None:
    """Python refuses to convert more than 4,300 digits."""
    assert commands(f"X=${{{name}}}\nrun") == [["run"]]


def test_many_branches_that_each_set_another_variable_are_followed_to_their_end() -> None:
    """The work grows with what the branches change, not with the branches times all variables."""
    arms = "".join(f"a{number}) B{number}=1;;\n" for number in range(3_000))
    assert commands(f"case $Y in\n{arms}esac\nrun")[-1] == ["run"]


@pytest.mark.parametrize(
    ("before", "changes"),
    [("", "".join(f"B{number}=1\n" for number in range(300))), (f"A=({'w ' * 3_000})", "A+=(k)\n")],
    ids=["many variables", "a long list"],
)
def test_what_branches_leave_is_not_merged_more_often_than_a_script_may_cost(before: str, changes: str) -> None:
    """A variable that is set below sixty conditions is merged sixty times: that counts, not the statements alone."""
    nested = "".join(f"if [ $X = {number} ]; then\n" for number in range(60)) + changes + "fi\n" * 60
    walker, _ = followed(f"{before}\nfor i in {'a ' * 100}; do\n{nested}done\nrun")
    assert walker.is_cut_short and walker.steps < MAX_STEPS // 2


def test_a_variable_that_every_branch_unsets_is_gone() -> None:
    assert commands("A=1\nif [ $Y ]; then unset A; else unset A; fi\nrun ${A:-none}") == [["run", "none"]]
    assert commands("A=1\nif [ $Y ]; then unset A; else A=1; fi\nrun $A") != [["run", "1"]]


def test_what_a_branch_adds_to_a_text_is_all_that_it_changes() -> None:
    """The command in front is still known: `$T` holds what starts the training, and an option or not."""
    script = 'T="python train.py --a 1"\nif [ -n "$W" ]; then T="$T --b 2"; fi\nbash -c "$T"'
    (items,) = [found for found in followed(script)[1] if texts(found)[0] == "bash"]
    text = items[-1]
    assert isinstance(text, Field) and text.prefix == "python train.py --a 1"


def test_the_end_of_a_path_is_known_where_its_beginning_is_not() -> None:
    script = 'M=${M:-$HOME/models/Qwen-7B}\nN=$(basename "${M,,}")\npython train.py $N $(basename $HOME) ${M^^}'
    _, _, name, home, upper = followed(script)[1][-1]
    assert texts((name, home)) == ["qwen-7b", None]
    assert isinstance(upper, Field) and [part.text for part in upper.parts if isinstance(part, Lit)] == [
        "/MODELS/QWEN-7B"
    ]


@pytest.mark.parametrize("printed", ["'%q ' run.sh 'a_b' ''", "'%s-%d,' a 1 b 2", "'<%s>' a b", "'none'"])
def test_printf_uses_its_format_until_no_word_is_left(printed: str) -> None:
    of_bash = subprocess.run(["bash", "-c", f"printf {printed}"], capture_output=True, text=True).stdout
    assert commands(f'printf -v X {printed}\none "$X"') == [["one", of_bash]]


def test_a_word_that_printf_quotes_is_one_for_the_shell_that_gets_it() -> None:
    assert commands("""printf -v X '%q ' run 'a b' "$OUT"\neval "$X" """)[0][:2] == ["run", "a b"]
    assert len(commands("""printf -v X '%q ' run 'a b' "$OUT"\neval "$X" """)[0]) == 3


def test_a_loop_that_never_ends_keeps_nothing_behind_it_from_being_read() -> None:
    rounds = "[ -f x ] && A=b\n" * 100
    assert commands(f"( while true; do\n{rounds}sleep 1\ndone ) &\none two") == [["one", "two"]]


@pytest.mark.parametrize(
    "script",
    [
        "N=0; if ((N++ == 0 && $(nproc) > 0)); then :; fi; one $N",
        "N=1; M=$((N += $(nproc) * 0)); one $N",
        "N=1; if (( --N || $(nproc) )); then :; fi; one $N",
        "N=1; if (( N <= $(nproc) )); then :; fi; one $N",
        "N=1; if (( N == $(nproc) + 0 || N != 0 )); then :; fi; one $N",
        "N=1; (( M = $(nproc), 1 )); one $N",
    ],
)
def test_what_arithmetic_that_is_not_known_changes_is_unknown_afterwards(script: str) -> None:
    """What is said to be known is what bash has; only what it may have changed is unknown."""
    of_bash = subprocess.run(["bash", "-c", f"one() {{ echo $1; }}; {script}"], capture_output=True, text=True).stdout
    ((_, known),) = commands(script)
    assert known in (None, of_bash.strip())
    assert (known is None) == any(change in script for change in ("N++", "N +=", "--N"))


@pytest.mark.parametrize(
    ("before", "asked", "is_known"),
    [
        ("mkdir -p out/ckpt", "-d out/ckpt", True),
        ("mkdir -p out/ckpt", "-e out", True),
        ("CK=$HOME/out; mkdir -p $CK/logs", "-d $CK", True),
        ("mkdir -p $SCRATCH/out; SCRATCH=/tmp", "-d $SCRATCH/out", False),
        ("mkdir -p $SCRATCH/out; rm -r $SCRATCH/out", "-d $SCRATCH/out", False),
        ("mkdir -p $SCRATCH/out; source there.sh", "-d $SCRATCH/out", False),
        ("source a.sh; mkdir -p $SCRATCH/out; source b.sh", "-d $SCRATCH/out", False),
        ('eval "$A"; mkdir -p $SCRATCH/out; eval "$B"', "-d $SCRATCH/out", False),
        ("D=out; mkdir $D; cd out", "-d ../out", True),
        ("mkdir -p -- out", "! -d out", True),
        ("mkdir out; cd out", "-d out", False),
        ("mkdir out; rm -r out", "-d out", False),
        ("mkdir -p out/ckpt; rm -r out/ckpt", "-d out", True),
        ("mkdir out; rm -r $(echo out | cat)", "-d out", False),
        ("mkdir out; mv out other", "-d out", False),
        ("mkdir -p out/ckpt; rm -r out/*", "-d out/ckpt", False),
        ("mkdir -p out/ckpt; rm -r ou?", "-d out", False),
        ("[ -n $(nproc) ] || mkdir out", "-d out", False),
        ("mkdir out", "-f out", False),
        ("(mkdir out)", "-d out", True),
        (":", "-d out", False),
    ],
)
def test_a_folder_that_the_script_makes_is_there_afterwards(
    tmp_path: Path, before: str, asked: str, is_known: bool
) -> None:
    script = f"{before}\nif [ {asked} ]; then one yes; else one no; fi"
    shell = f"one() {{ echo $1; }}; {script}"
    of_bash = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True).stdout.strip()
    found = [command for command in commands(script) if command != [None]]  # what `eval` runs
    assert found == ([["one", of_bash]] if is_known else [["one", "yes"], ["one", "no"]])
