"""Words of a script: quoting, variables, arrays, arithmetic, splitting. Bash itself checks every line of the tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.bash.value import Field, Item, Maybe, Unseen, reason_of
from support.rows import rows
from support.selection import examples
from support.shell import BASH, followed, run_in_bash


def read_words(script: str) -> list[str]:
    """The words behind `train.py` in the last command; what is unknown stands in angle brackets."""
    _, commands = followed(script)
    return after_program([shown(item) for item in commands[-1]])


def after_program(words: list[str]) -> list[str]:
    return words[words.index("train.py") + 1 :]


def shown(item: Item) -> str:
    if isinstance(item, Unseen):
        return f"<unseen: {item.reason}>"
    if isinstance(item, Maybe):
        return "<maybe: " + " | ".join(" ".join(map(shown, option)) for option in item.options) + f": {item.reason}>"
    assert isinstance(item, Field)
    text = item.text
    return f"<{reason_of(item.parts)}>" if text is None else text


def bash_words(script: str) -> list[str]:
    """The same from bash, with a function in place of python."""
    return after_program(run_in_bash(script, "python() { printf '%s\\0' \"$@\"; }"))


PLAIN = [
    # quoting
    ("python train.py a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
    ("python train.py '' \"\" a''b", ["", "", "ab"]),
    ('python train.py "a\'b" \'c"d\' "e\\"f" "g\\$h" "i\\j"', ["a'b", 'c"d', 'e"f', "g$h", "i\\j"]),
    ("python train.py $'a\\tb' $'c\\'d'", ["a\tb", "c'd"]),
    ("python train.py --a=\"x y\"z'w'", ["--a=x yzw"]),
    ("python train.py a \\\n  b \\\n  c # d\n", ["a", "b", "c"]),
    ("python train.py --a 1\\\n--b 2", ["--a", "1--b", "2"]),
    ("A='x'\\\n'y'\npython train.py $A", ["xy"]),
    # variables
    ('A=4\npython train.py $A ${A} "$A" x${A}y', ["4", "4", "4", "x4y"]),
    ("A='1  2'\npython train.py $A \"$A\"", ["1", "2", "1  2"]),
    ('A=\npython train.py x $A "$A" y', ["x", "", "y"]),
    ("A=1\nA+=2\npython train.py $A", ["12"]),
    ("A='--b 1'\nA=\"$A --c 2\"\nA+=' --d'\npython train.py $A", ["--b", "1", "--c", "2", "--d"]),
    ('B=\nA="x $B"\nB=2\npython train.py $A $B', ["x", "2"]),
    ('if [ -z "$B" ]; then B=2; fi\npython train.py $B', ["2"]),
    ('UNSET2=\nA=" \\\n  --b 1 \\\n  --c $UNSET2 2 "\npython train.py $A', ["--b", "1", "--c", "2"]),
    ('A=b\nB="$A $A"\npython train.py "$A $B" $A$A', ["b b b", "bb"]),
    ("export A=1 B\nB=2\npython train.py $A $B", ["1", "2"]),
    ("declare -x A=1\nreadonly B=2\npython train.py $A $B", ["1", "2"]),
    ("A=1\nunset A\npython train.py x$A", ["x"]),
    ("A=1 B=2\npython train.py $A$B", ["12"]),
    # defaults and edits
    ("A=\nB=1\npython train.py ${A:-x} ${A-x} ${B:-x} ${A:+x} ${B:+x} ${C:-y}", ["x", "1", "x", "y"]),
    ("A=\npython train.py ${A:=7} $A ${N:-${A}8}", ["7", "7", "78"]),
    (": ${A:=5}\npython train.py $A", ["5"]),
    ('python train.py ${A:-"b c"} ${A:-b c} "${A:-b c}"', ["b c", "b", "c", "b c"]),
    ("python train.py \"${A:-'b c'}\" ${A:-'b c'}", ["'b c'", "b c"]),
    (
        "A=model.tar.gz\npython train.py ${A%.gz} ${A%%.*} ${A#*.} ${A##*.} ${A/model/x} ${A//a/b} ${A:0:5} ${A: -2}",
        ["model.tar", "model", "tar.gz", "gz", "x.tar.gz", "model.tbr.gz", "model", "gz"],
    ),
    ("A=Fp8\npython train.py ${A,,} ${A^^} ${#A} ${A,}", ["fp8", "FP8", "3", "fp8"]),
    ("A=B\nB=3\npython train.py ${!A}", ["3"]),
    (
        'D=d S=s T=t\nA=$D/$S-$T.o\npython train.py $D/$S-$T.o --c=$D/$S/$T a$ $ "$D/$" \\$S $A ${D}/$S.y $D$S$T/$S-',
        ["d/s-t.o", "--c=d/s/t", "a$", "$", "d/$", "$S", "d/s-t.o", "d/s.y", "dst/s-"],
    ),
    ("A=1 B=2\nif [ $A = 1 ]; then B=3 C=4\nfi\nexport D=5\npython train.py $A $B $C $D", ["1", "3", "4", "5"]),
    ("A=1 B=2\nC=''\nif [ $A = 1 ]; then B=3; fi\npython train.py $A $B", ["1", "3"]),
    ('A= B=()\nC=\'\'\nD="$A "\nif [[ "$D" == *a* ]]; then D=0; else D=1; fi\npython train.py $D', ["1"]),
    # arrays
    ("A=(--x 1 '2 3')\npython train.py \"${A[@]}\"", ["--x", "1", "2 3"]),
    ("A=(--x 1 '2 3')\npython train.py ${A[@]}", ["--x", "1", "2", "3"]),
    ("A=(--x 1 '2 3')\npython train.py \"${A[*]}\" ${A[*]}", ["--x 1 2 3", "--x", "1", "2", "3"]),
    (
        'A=(a b)\nA+=(c)\nA=("${A[@]}" d)\npython train.py "${A[@]}" ${#A[@]} ${A[1]} $A',
        ["a", "b", "c", "d", "4", "b", "a"],
    ),
    ('A=()\npython train.py x "${A[@]}" ${A[@]} y', ["x", "y"]),
    ('A=(\n  --x 1 # one\n  # two\n  --y=2\n)\npython train.py "${A[@]}"', ["--x", "1", "--y=2"]),
    (
        'A=(a b c d)\npython train.py "${A[@]:1:2}" "${A[@]:2}" ${A[-1]} "${!A[@]}"',
        ["b", "c", "c", "d", "d", "0", "1", "2", "3"],
    ),
    ('A=(a b)\npython train.py "x${A[@]}y" "${A[@]/#/--}"', ["xa", "by", "--a", "--b"]),
    ("A=(a b)\nI=1\nA[2]=c\npython train.py ${A[$I]} ${A[I+1]} ${A[@]}", ["b", "c", "a", "b", "c"]),
    ('A=(a b)\npython train.py ${A[@]+"${A[@]}"} ${B[@]+"${B[@]}"}\nB=()', ["a", "b"]),
    ('A=(--x 1)\nS="${A[@]}"\npython train.py $S', ["--x", "1"]),
    ("A=(a{1..3} {x,y}z)\npython train.py ${A[@]}", ["a1", "a2", "a3", "xz", "yz"]),
    (
        "A=({08..10}.bin {-1..01} {01..10..4} {3..1..2})\npython train.py ${A[@]}",
        ["08.bin", "09.bin", "10.bin", "-1", "00", "01", "01", "05", "09", "3", "1"],
    ),
    # arithmetic
    (
        "A=4\nB=$((A*2))\npython train.py $B $(($A + ${B} - 1)) $((B/3)) $((-7/2)) $((7%4)) $((2**10))",
        ["8", "11", "2", "-3", "3", "1024"],
    ),
    (
        "python train.py $((128 * 1024)) $((1<<4)) $((3>2)) $((0?5:6)) $((0x10)) $((!0)) $(( (1+2)*3 ))",
        ["131072", "16", "1", "6", "16", "1", "9"],
    ),
    ('A=9\nB=4\nC="${6:-$(((A + B - 1) / B))}"\npython train.py $C', ["3"]),
    ('A=9\nB=4\nC="${6:-$(( (A - 1) / B ))}"\npython train.py $C', ["2"]),
    ('A=2\npython train.py "${6:-$((A * $((A + 1))))}"', ["6"]),
    ("A=9\nB=4\nC=${6:-$(((A + B) * 2))}\npython train.py $C", ["26"]),
    ("A=9\nB=4\n: ${C:=$((1 + (A - $B) / ${B}))}\npython train.py $C", ["2"]),
    ("python train.py '${A:-$(((1 + 2) * 2))}'", ["${A:-$(((1 + 2) * 2))}"]),
    ("A=2\nB=3\npython train.py $(((A + B) * 4)) $(( $A ** 3 ))", ["20", "8"]),
    ("A=1\n((A++))\n((A += 5))\nlet A=A*2\npython train.py $A $((A++)) $A", ["14", "14", "15"]),
    ("A=5; python train.py $[A+1] $((010))", ["6", "8"]),
    ("G=8\nN=4\nW=$(($G*$N))\npython train.py --x=$((W/8/2))", ["--x=2"]),
    # what a shell prints itself
    ('A=$(echo a  b)\npython train.py "$A" $(echo "c  d") `echo e`', ["a b", "c", "d", "e"]),
    ("A=4\npython train.py $([ $A -gt 1 ] && echo $((A * 2)) || echo 1)", ["8"]),
    ("read -r A B <<< '1 2 3'\npython train.py $A \"$B\"", ["1", "2 3"]),
    ("IFS=, read -r A B C <<< '4,1,8'\npython train.py $A $B $C", ["4", "1", "8"]),
    ("IFS=',' read -ra A <<< '4,1,8'\npython train.py ${A[@]}", ["4", "1", "8"]),
    ('B=\nread -r -a A <<< "$B"\npython train.py x "${A[@]}" y', ["x", "y"]),
    ("IFS=',' read -ra A <<< '4,1,'\npython train.py \"${A[@]}\" y", ["4", "1", "y"]),
    ("IFS=',' read -ra A <<< '4,,'\npython train.py \"${A[@]}\" y", ["4", "", "y"]),
    ("read -ra A <<< ' 4 1 '\npython train.py \"${A[@]}\" y", ["4", "1", "y"]),
    ("A=1\n<<!\nA=2\ncat <<EOT > x\ny\nEOT\n!\npython train.py $A", ["1"]),
    ("A=1\n<<'END'\nA=\"2\nEND\n<<-\tC\nA=3\n\tC\npython train.py $A", ["1"]),
    ("cat <<EOF >/dev/null\n<<B\nEOF\nA=2\npython train.py $A\n: <<EOF\nB\nEOF", ["2"]),
    ("read -r -d '' A <<EOF || true\n--x 1\n  --y 2\nEOF\npython train.py $A", ["--x", "1", "--y", "2"]),
    ('set -- a b c\npython train.py $2 $# "$@"\nshift', ["b", "3", "a", "b", "c"]),
    ("C='python train.py'\nC=\"$C --x 1\"\n$C --y", ["--x", "1", "--y"]),
    ("C=(python train.py)\nC+=(--x 'a b')\n\"${C[@]}\"", ["--x", "a b"]),
    ('C=\'python train.py --x "a b"\'\neval "$C"', ["--x", "a b"]),
]


@rows("script, words", PLAIN)
def test_words_are_those_of_the_table(script: str, words: list[str]) -> None:
    assert read_words(script) == words


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@rows("script, words", PLAIN)
def test_bash_makes_the_same_words(script: str, words: list[str]) -> None:
    assert bash_words(script) == words


def test_a_name_that_the_script_sets_below_has_the_value_from_outside_where_it_is_read() -> None:
    assert read_words("A=$B/x; B=/t\npython train.py $A $B") == ["<B is not set in this script>", "/t"]
    assert read_words("if false; then B=/t; fi; A=$B/x\npython train.py $A") == ["/x"]


FLOW = [
    ("A=2\nif [ $A -gt 1 ]; then B=x; else B=y; fi\npython train.py $B", ["x"]),
    ("A=2\nif [[ $A == 1 ]]; then B=x; elif [[ $A = 2 && -n $A ]]; then B=y; else B=z; fi\npython train.py $B", ["y"]),
    (
        'A=ab\nif [[ "$A" == a* ]]; then B=1; fi\n[[ $A != *c ]] && B+=2\n[[ $A =~ ^a.$ ]] && B+=3\npython train.py $B',
        ["123"],
    ),
    ('A=\n[ -z "$A" ] && B=1 || B=2\n[ -n "$A" ] && C=1 || C=2\npython train.py $B $C', ["1", "2"]),
    ("A=5\nif ((A > 4)); then B=x; fi\nif ! ((A > 4)); then B=y; fi\npython train.py $B", ["x"]),
    ("for i in 1 2 3; do A+=($i); done\npython train.py ${A[@]} $i", ["1", "2", "3", "3"]),
    ('for ((i=0; i<3; i++)); do A+=" $i"; done\npython train.py $A', ["0", "1", "2"]),
    ('i=0\nwhile [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && continue; A+=" $i"; done\npython train.py $A', ["1", "3"]),
    ("for i in 1 2 3; do if [ $i = 2 ]; then break; fi; done\npython train.py $i", ["2"]),
    ("A=b\ncase $A in a) B=1;; b|c) B=2;; *) B=3;; esac\npython train.py $B", ["2"]),
    ('A=xyz\ncase "$A" in x*) B=1;; *) B=3;; esac\npython train.py $B', ["1"]),
    ("f() { local A=2; B=$1; }\nA=1\nf 7\npython train.py $A $B", ["1", "7"]),
    ("function g { python train.py \"$@\"; }\ng a 'b c'", ["a", "b c"]),
    ("f() { return; A=2; }\nA=1\nf\npython train.py $A", ["1"]),
    ("A=1\n(A=2)\npython train.py $A", ["1"]),
    ("A=1\n{ A=2; }\npython train.py $A", ["2"]),
    (
        'set -e\nA=("4,1" "2,2")\nfor C in "${A[@]}"; do IFS=\',\' read -r T P <<< $C; done\npython train.py $T $P',
        ["2", "2"],
    ),
    ("until [ ${#A} -ge 3 ]; do A+=x; done\npython train.py $A", ["xxx"]),
    ("A=1 && B=2 || B=3\ntrue && C=4\nfalse || D=5\nfalse && D=6\npython train.py $A $B $C $D", ["1", "2", "4", "5"]),
    ("[ a = b -o 1 -eq 1 ] && A=1\n[[ a < b || x ]] && B=2\npython train.py $A $B", ["1", "2"]),
    ('if [ "$#" -gt 0 ]; then A=1; else A=2; fi\npython train.py $A', ["2"]),
]


@rows("script, words", FLOW)
def test_decidable_branches_and_loops_are_followed(script: str, words: list[str]) -> None:
    assert read_words(script) == words


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@rows("script, words", FLOW)
def test_bash_follows_the_same_branches(script: str, words: list[str]) -> None:
    assert bash_words(script) == words


NAMES = st.sampled_from(["A", "B", "CC"])
TEXTS = st.text(alphabet="ab1-=.,:/ ", max_size=6)
NUMBERS = st.integers(-9, 99).map(str)


@st.composite
def statements(draw: st.DrawFn) -> str:
    name, other = draw(NAMES), draw(NAMES)
    text, number = draw(TEXTS), draw(NUMBERS)
    return draw(
        st.sampled_from(
            [
                f"{name}='{text}'",
                f'{name}="{text}${{{other}}}"',
                f"{name}+='{text}'",
                f'{name}="${other} {text}"',
                f"{name}=${{{other}:-{number}}}",
                f'{name}="${{{other}:+{number}}}"',
                f"{name}=${{#{other}}}",
                f"{name}=${{{other}%{text[:2].strip() or 'a'}*}}".replace(" ", ""),
                f'{name}="${{{other}//a/{number}}}"',
                f"N={number}; M=$((N * 3 - 7)); {name}=$((M > N ? M : N % 5))",
                f'L=(\'{text}\' ${other} "${name}"); {name}="${{L[*]}}"',
                f'L+=("${other}"); {name}=${{#L[@]}}',
                f'if [[ "${other}" == *a* ]]; then {name}={number}; else {name}="{text}"; fi',
                f"[ -n \"${other}\" ] && {name}={number} || {name}='{text}'",
                f'for i in ${other} x; do {name}="${{i}}{number}"; done',
                f'case "${other}" in *1*) {name}=1;; "") {name}=2;; *) {name}=3;; esac',
                f'f() {{ local {other}={number}; {name}="$1${other}"; }}; f "{text}"',
            ]
        )
    )


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=examples(quick=8, full=150))
@given(st.lists(statements(), max_size=8))
def test_random_scripts_give_the_words_that_bash_gives(lines: list[str]) -> None:
    script = "\n".join(["A= B= CC= L=()", *lines, 'python train.py $A "$B" x$CC "${L[@]}" ${L[@]} "${A}${B}" end'])
    assert read_words(script) == bash_words(script)
