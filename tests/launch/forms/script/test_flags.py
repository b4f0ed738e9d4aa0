"""A script's words as flags. Where parts cannot be told, only those parts are unknown, each with its reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.bash.value import ScriptText
from megatron_hcp.launch.dialects.table import types_of
from megatron_hcp.launch.forms.script.flags import Gathered, flags_of
from megatron_hcp.launch.forms.script.follow import Followed
from megatron_hcp.launch.forms.words.settings import Word, settings_of_flags
from support.selection import examples
from support.shell import BASH, run_in_bash

OUTPUT = "the output of a command in line 1 is not known: commands are never run"
N = "N=$(nvidia-smi -L | wc -l)"
IF, CASE = "depends on the `if` in line", "depends on the `case` in line"


def read(script: str) -> Gathered:
    return flags_of(Followed(ScriptText(script.encode(), "x.sh")).launches[-1].started.arguments, types_of("mlm"))


def known(script: str) -> dict[str, list[str]]:
    gathered = read(script)
    return {s.key: s.value for s in gathered.settings if s.key not in gathered.unknown}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("TP=$(nproc)\npython x.py --tp $TP --pp 2", OUTPUT),
        ("TP=`nproc`\npython x.py --tp=$TP --pp 2", OUTPUT),
        ("python x.py --tp $TP --pp 2", "TP is not set in this script"),
        ('python x.py --tp "$TP" --pp 2', "TP is not set in this script"),
        ("TP=$1\npython x.py --tp $TP --pp 2", "$1 is an argument of the script"),
        ("python x.py --tp $((SLURM_NNODES * 2)) --pp 2", "SLURM_NNODES is set by Slurm when the job runs"),
        ("python x.py --tp ${SLURM_NNODES:-2} --pp 2", "SLURM_NNODES is set by Slurm when the job runs"),
        ("source conf.sh\npython x.py --tp ${TP:-2} --pp 2", "TP may be set by conf.sh, which line 1 sources"),
        ("if [ -f y ]; then TP=4; else TP=8; fi\npython x.py --tp $TP --pp 2", f"is 4 or 8, which {IF} 1"),
        ("TP=4\nif grep -q x y; then TP=8; fi\npython x.py --tp $TP --pp 2", f"is 8 or 4, which {IF} 2"),
        # One of the branches leaves what a command prints; which of them comes first doesn't matter.
        (f"{N}\nif [ $N -le 0 ]; then N=8; fi\npython x.py --tp $N --pp 2", f"{IF} 2"),
        (f"{N}\nif [ $N -gt 8 ]; then :; else N=8; fi\npython x.py --tp $N --pp 2", f"{IF} 2"),
        (f"if foo; then {N}; fi\nif [ $N -le 0 ]; then N=8; fi\npython x.py --tp $N --pp 2", f"{IF} 2"),
        (f"if foo; then {N}; else N=0; fi\nif [ $N -le 0 ]; then N=8; fi\npython x.py --tp $N --pp 2", f"{IF} 2"),
        ("TP=4\nwhile read l; do TP=$l; done < f\npython x.py --tp $TP --pp 2", "changes in the loop in line 2"),
        ("for TP in $LIST; do true; done\npython x.py --tp $TP --pp 2", "changes in the loop in line 1"),
        ("case $M in a) TP=2;; *) TP=4;; esac\npython x.py --tp $TP --pp 2", f"is 2 or 4, which {CASE} 1"),
        (
            "if [ -f y ]; then TP=4; elif [ -f z ]; then TP=4; else TP=8; fi\npython x.py --tp $TP --pp 2",
            f"is 4 or 8, which {IF} 1",
        ),
        ("TP=4\nfoo && TP=2\npython x.py --tp $TP --pp 2", "is 2 or 4, which depends on the condition in line 2"),
        ("TP=4\nfoo || TP=2\npython x.py --tp $TP --pp 2", "is 2 or 4, which depends on the condition in line 2"),
        ("read TP < f\npython x.py --tp $TP --pp 2", "TP is read from an input that is not known"),
        ("python x.py --tp <(cat f) --pp 2", OUTPUT),
        ('read TP <<< "$(cat f)"\npython x.py --tp $TP --pp 2', OUTPUT),
        ("printf -v TP %d $X\npython x.py --tp $TP --pp 2", "TP is set by printf"),
        ("TP=$((1/0))\npython x.py --tp $TP --pp 2", "the arithmetic divides by zero"),
        ('eval "TP=$(cat f)"\npython x.py --tp ${TP:-1}x$Z --pp 2', "Z is not set in this script"),
    ],
)
def test_only_the_fact_that_cannot_be_told_is_unknown(script: str, reason: str) -> None:
    gathered = read(script)
    assert {s.key: s.value for s in gathered.settings} == {"pp": ["2"]}
    assert gathered.unseen is None
    if "eval" not in script:
        assert gathered.unknown == {"tp": reason}
    assert set(gathered.unknown) == {"tp"}


@pytest.mark.parametrize(
    ("words", "unseen"),
    [
        ('--tp 4 "${EXTRA[@]}"', "EXTRA is not set in this script"),
        ("--tp 4 ${EXTRA[@]}", "EXTRA is not set in this script"),
        ("--tp 4 $EXTRA", "EXTRA is not set in this script"),
        ("$EXTRA --tp 4", "EXTRA is not set in this script"),
        ("--tp 4 --bf16 $MOE_ARGS", "MOE_ARGS is not set in this script"),
        ("--tp 4 --sequence-parallel $X", "X is not set in this script"),
        ("--tp 4 --use-mcore-models $X", "X is not set in this script"),
        ("--tp 4 $(cat args)", OUTPUT),
        ("--tp 4 --$X-size 2", "X is not set in this script"),
        ("--tp 4 $X", "X is not set in this script"),
        ("--tp 4", None),
        ('--tp 4 "$@"', None),
        ("--tp 4 ${EXTRA:-}", None),
        ("--tp 4 --seq-length $X", None),
        ("--tp 4 --data-path $A $B", None),
        ("--tp 4 --eval-prompt-data aime $X/aime.jsonl", None),
        ("--tp 4 --recompute-modules core_attn $(cat x)", None),
        ("--tp 4 --eval-prompt-data aime $X", None),
        ("--tp 4 --hierarchical-context-parallel-sizes 8 $X", None),
        ("--tp 4 --hierarchical-context-parallel-sizes 4 2 $X", "X is not set in this script"),
        ("--tp 4 --hierarchical-context-parallel-sizes $X $Y $Z", None),
        ("--tp 4 --cp-comm-type p2p $X", "X is not set in this script"),
    ],
)
def test_words_that_cannot_be_seen_among_the_flags_make_absent_flags_unknown(words: str, unseen: str | None) -> None:
    gathered = read(f"python x.py {words}")
    assert gathered.unseen == unseen
    assert {s.key: s.value for s in gathered.settings}["tp"] == ["4"]


@pytest.mark.parametrize("value", ["$X/aime.jsonl", '"$X.jsonl"', "$X"])
def test_a_second_value_that_cannot_be_seen_makes_its_option_unknown(value: str) -> None:
    gathered = read(f"python x.py --tp 4 --eval-prompt-data aime {value} --pp 2")
    assert {s.key: s.value for s in gathered.settings} == {"tp": ["4"], "pp": ["2"]}
    assert gathered.unknown == {"eval_prompt_data": "X is not set in this script"}


def test_an_unknown_word_after_complete_values_may_be_one_more_or_options() -> None:
    gathered = read("python x.py --hierarchical-context-parallel-sizes 4 2 $X --pp 2")
    assert {s.key: s.value for s in gathered.settings} == {"pp": ["2"]}
    assert gathered.unknown == {"hierarchical_context_parallel_sizes": "X is not set in this script"}
    assert gathered.unseen == "X is not set in this script"


def test_flags_of_an_undecided_branch_are_unknown_and_the_others_are_not() -> None:
    script = "A=(--tp 4)\nif foo; then A+=(--cp 2 --bf16); fi\nA+=(--pp 2)\npython x.py ${A[@]}"
    gathered = read(script)
    assert known(script) == {"tp": ["4"], "pp": ["2"]}
    assert gathered.unknown == {"cp": f"{IF} 2", "bf16": f"{IF} 2"}
    assert gathered.unseen is None


def test_flags_that_all_branches_share_are_known() -> None:
    script = "if foo; then A='--cp 2 --x 1'; else A='--y --cp 2'; fi\npython x.py $A --tp 4"
    assert known(script) == {"cp": ["2"], "tp": ["4"]}
    assert set(read(script).unknown) == {"x", "y"}


def test_an_undecided_change_of_a_known_flag_makes_it_unknown_and_a_later_one_decides() -> None:
    assert known("if foo; then A='--tp 8'; fi\npython x.py --tp 4 $A") == {}
    assert known("if foo; then A='--tp 8'; fi\npython x.py $A --tp 4") == {"tp": ["4"]}


def test_text_that_grows_in_branches_keeps_what_is_certain() -> None:
    script = "O=' --tp 4'\nif foo; then O=\"$O --cp 2\"; fi\nif bar; then O+=' --ep 2'; fi\npython x.py $O --pp 1"
    assert known(script) == {"tp": ["4"], "pp": ["1"]}
    assert set(read(script).unknown) == {"cp", "ep"}


def test_a_branch_that_ends_the_script_is_not_taken() -> None:
    assert known('TP=4\nif [ -z "$IMAGE" ]; then TP=1; exit 1; fi\npython x.py --tp $TP') == {"tp": ["4"]}
    assert known('IMAGE=\nTP=4\nif [ -z "$IMAGE" ]; then TP=1; exit 1; fi\npython x.py --tp $TP') == {"tp": ["4"]}
    assert known("TP=4\nfoo || { TP=1; exit 1; }\npython x.py --tp $TP") == {"tp": ["4"]}
    assert known("die() { exit 1; }\nTP=4\n[ -d x ] || die no\npython x.py --tp $TP") == {"tp": ["4"]}


def test_a_loop_of_unknown_length_leaves_an_array_open_at_its_end() -> None:
    script = "A=(--tp 4)\nfor f in $FILES; do A+=(--x $f); done\npython x.py ${A[@]} --pp 2"
    assert known(script) == {"tp": ["4"], "pp": ["2"]}
    assert read(script).unseen == "changes in the loop in line 2"


def test_a_line_that_cannot_be_parsed_spoils_no_other_line() -> None:
    assert known("A=4\nB=<PATH> (x\npython x.py --tp $A --pp 2")["pp"] == ["2"]


ENVIRONMENT = ["", "1", "2", "ab", "2 3"]
NAMES = st.sampled_from(["A", "B"])
CONDITIONS = st.sampled_from(
    [
        '[ -n "$E" ]',
        '[ "$E" = 1 ]',
        '[[ "$E" == a* ]]',
        '[ -z "$A" ]',
        '[[ $A -gt 1 || "$E" != ab ]]',
        "grep -q x y",
        '[[ -n $B && ! "$E" == 1 ]]',
        "((${#E} > 1))",
        "((${#A} > 0))",
        '! [ "$E" = 2 ]',
    ]
)
SIMPLE = st.sampled_from(
    [
        "A=3",
        "B='--y 2'",
        'A="$E"',
        "A+=4",
        'B="$B --w"',
        "L+=(--u 5)",
        'L+=("--v=$A")',
        "L=(--t ${L[@]})",
        "A=$E",
        "A=$((${#A} + 1))",
        'A="${A}${E}"',
        "M=(--s $E)",
        'B="${E}x"',
        "A=${#E}",
        "B=",
        "L+=($B)",
        'A="$(echo "$A$E")"',
    ]
)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    first, second, condition = draw(SIMPLE), draw(SIMPLE), draw(CONDITIONS)
    return draw(
        st.sampled_from(
            [
                first,
                f"if {condition}; then {first}; fi",
                f"if {condition}; then {first}; else {second}; fi",
                f"{condition} && {first}",
                f"{condition} || {first}",
                f"{condition} && {first} || {second}",
                f"for i in 1 $E; do {first}; done",
                f"for i in 1 2; do {first}; if {condition}; then {second}; fi; done",
                f'case "$E" in 1) {first};; a*|2) {second};; esac',
                f"case $A in 3*) {first};; *) {second};; esac",
                f"f() {{ {first}; }}; if {condition}; then f; fi",
                f"if {condition}; then {first}; exit; fi",
                f"( {first} )",
                f"n=0; while [ $n -lt ${{#E}} ]; do n=$((n + 1)); {first}; done",
                f'if {condition}; then {first}; elif [ -n "$A" ]; then {second}; fi',
                f"for i in 1 2 3; do if {condition}; then break; fi; {first}; done",
            ]
        )
    )


def bash_flags(script: str, value: str) -> dict[str, list[str]] | None:
    """The flags that bash makes with E=value in the environment; None where the script ends before."""
    stub = "python() { printf '%s\\0' \"$@\"; }\ngrep() { [[ $E == 2 ]]; }"
    words = run_in_bash(script, stub, E=value)
    return {s.key: s.value for s in settings_of_flags([Word(word) for word in words[1:]])} if words else None


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=examples(quick=8, full=60))
@given(st.lists(blocks(), min_size=1, max_size=5))
def test_whatever_is_called_known_is_so_in_every_environment(lines: list[str]) -> None:
    """Soundness: E is not known here, so no value that depends on it may be called known, nor a flag absent."""
    script = "\n".join(["A=1; B=; L=(--k 1); M=()", *lines, 'python x.py --a "$A" ${L[@]} --b=$A $B ${M[@]} --end 1'])
    gathered, says = read(script), known(script)
    for value in ENVIRONMENT:
        flags = bash_flags(script, value)
        if flags is None:
            continue
        for key, words in says.items():
            # A word that is not seen may follow a flag's value; which flags take more than one is not known.
            found = flags.get(key, ["absent"])
            assert (found if gathered.unseen is None else found[: len(words)]) == words, (key, value)
        absent = set(flags) - set(says) - set(gathered.unknown)
        assert gathered.unseen is not None or not absent, (absent, value)


def test_a_variable_named_like_a_path_is_one_value_however_else_it_is_named() -> None:
    """examples/eval/scripts/run-qwen3-32B.sh of miles: `EVAL_ARGS=(--eval-config "${EVAL_CONFIG_PATH}" …)`."""
    script = 'A=(--eval-config "${%s}" --pp 1)\npython x.py ${A[@]} --tp 2'
    assert known(script % "EVAL_CONFIG_PATH") == {"pp": ["1"], "tp": ["2"]}
    assert read(script % "EVAL_CONFIG_PATH").unseen is None
    assert read(script % "EVAL_CONFIG").unseen is not None
