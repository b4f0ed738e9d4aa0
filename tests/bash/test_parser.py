"""The syntax tree: what it holds, whatever the text, and that nothing outside the parser's folder knows the parser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.bash.parser.script import narrow, parse
from megatron_hcp.bash.syntax import BraceGroup, NotUnderstood, Script, ShellWord, SyntaxNode
from megatron_hcp.bash.value import ScriptText
from megatron_hcp.ground.errors import HcpError
from support.selection import examples

PARSER = Path("src", "megatron_hcp", "bash", "parser")


def parsed(script: str) -> Script:
    return parse(ScriptText(script.encode(), "x.sh"))


def test_a_line_that_only_starts_like_the_end_of_a_document_does_not_end_it() -> None:
    text = 'cat <<EOF\nEOFINNER\nif [[ -n "$X" ]]; then\nEOF\nA=1\n'
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    found = parsed(text)
    assert found.lost_from is None and [name for _, name in found.assigned] == ["A"]


def below(field: object) -> Iterator[SyntaxNode]:
    """The nodes right below a field of a node, or a list of fields."""
    if isinstance(field, SyntaxNode):
        yield field
    elif isinstance(field, list | tuple):
        for one in field:
            yield from below(one)


def children(node: SyntaxNode) -> Iterator[SyntaxNode]:
    for slots in (getattr(kind, "__slots__", ()) for kind in type(node).__mro__):
        for slot in slots:
            yield from below(getattr(node, slot))


def shown(script: str) -> str:
    """The statements of a script by their kinds, each with its words as they are written; groups are left out."""

    def show(node: SyntaxNode) -> str:
        written = script.encode()[node.start : node.end].decode()
        if isinstance(node, ShellWord):
            return written
        if isinstance(node, BraceGroup):
            return " ".join(map(show, node.statements))
        return f"{type(node).__name__}({', '.join(map(show, children(node)))})"

    return " ".join(map(show, parsed(script).statements))


@pytest.mark.parametrize(
    ("script", "tree"),
    [
        ("run a $b", "Command(run, a, $b)"),
        ("A=1 B=2\nC=3 run", "Assignment(1) Assignment(2) Command(Assignment(3), run)"),
        ("A=1 B=2\nC=3", "Assignment(1) Assignment(2) Assignment(3)"),
        ("if a; then A=1 B=2\nfi", "If(Command(a), Assignment(1) Assignment(2))"),
        ("run $a/$b-$c", "Command(run, $a/$b-$c)"),
        ("run a\\\nb", "Command(run, a\\\nb)"),
        ("A=a\\\n'b'", "Assignment(a\\\n'b')"),
        ("[ $a = b -a -n c ]", "Condition($a, b, c)"),
        ("! ((a > b))", "Negation(ArithmeticCommand(Text()))"),
        ("((a > $b))", "ArithmeticCommand(Text(), Parameter())"),
        ("f() { run; }", "Function(Command(run))"),
        ("while a; do b; done", "WhileLoop(Command(b), Command(a))"),
        ("a && b || c", "AndOr(Command(a), Command(b), Command(c))"),
        ("cat <<EOF | run\nx\nEOF", "Redirected(Pipeline(Command(run)), Command(cat), x\n)"),
        ("case $a in b | c) run ;; esac", "Case(b, c, Command(run), $a)"),
        ("unset A B", "Command(unset, A, B)"),
        ("export A B=1", "Declaration(Assignment(), Assignment(1))"),
    ],
)
def test_statements_are_what_bash_makes_of_a_script(script: str, tree: str) -> None:
    assert shown(script) == tree


def test_comments_are_found_where_they_stand_between_statements() -> None:
    script = "# a\nrun # b\n"
    assert [script[start:end] for start, end in parsed(script).comments] == ["# a", "# b"]


@pytest.mark.parametrize("script", ["a )", "${", 'b "c', "A=(1 ) )"])
def test_what_is_not_understood_is_in_the_tree(script: str) -> None:
    stack: list[SyntaxNode] = list(parsed(script).statements)
    kinds = []
    while stack:
        kinds.append(type(stack[-1]))
        stack += children(stack.pop())
    assert NotUnderstood in kinds


@pytest.mark.parametrize("depth", [10, 5000])
def test_statements_and_words_may_nest_as_deeply_as_they_like(depth: int) -> None:
    assert parsed("if a; then\n" * depth + "fi\n" * depth).statements
    assert parsed("a " + '"${b:-' * depth + '}"' * depth).statements
    assert parsed("a " + "$(" * depth + ")" * depth).statements


def test_what_is_assigned_is_listed_also_where_it_is_not_understood() -> None:
    deep = 200
    inner = "A=1; IFS= read B; for C in x; do :; done; D[1]=2; E=1 F=2 > log\n"
    script = parsed("X=1\n" + "if a; then\n" * deep + inner + "fi\n" * deep)
    assert set(script.assigned_in(script.statements[1])) == set("ABCDEF") | {"IFS"}
    assert script.assigned_in(script.statements[0]) == ["X"]


PIECES = st.sampled_from(
    "a b =1 $x ${ } \" ' ` $( ) $(( )) (( [[ ]] \\\n <<EOF\n EOF\n | && || ; if then else fi for in do done case esac "
    "é A=( A+= [@] while f() { export unset {1..3} :- # % // @ ! \n 中 \U0001f600".split(" ")
)


@settings(max_examples=examples(quick=12, full=300))
@given(st.lists(PIECES, max_size=40).map(" ".join) | st.lists(PIECES, max_size=40).map("".join))
def test_whatever_the_text_each_node_lies_within_the_one_above(text: str) -> None:
    try:
        script = parsed(text)
    except HcpError:
        return  # a statement without an end
    whole = SyntaxNode(0, len(text.encode()))
    stack: list[tuple[SyntaxNode, SyntaxNode]] = [(whole, node) for node in script.statements]
    while stack:
        above, node = stack.pop()
        assert above.start <= node.start <= node.end <= above.end
        stack += [(node, child) for child in children(node)]
    assert script.assigned == sorted(script.assigned)


@pytest.mark.parametrize("text", ["plain", "é ß", "中文", "{\U000f0000}", "a\U0001f600b\U0010ffffc"])
def test_the_parser_sees_no_character_that_may_end_the_process(text: str) -> None:
    shown_to_parser = narrow(text.encode())
    assert len(shown_to_parser) == len(text.encode())
    assert all(ord(char) <= 0xFFFF for char in shown_to_parser.decode())
    assert [char for char in text if char <= "\uffff"] == [char for char in shown_to_parser.decode() if char != "¤"]


def test_only_the_parsers_folder_knows_the_parser(root: Path) -> None:
    signs = ("tree_sitter", "child_by_field_name", "named_children", "start_byte")
    knowing = {
        path.relative_to(root).parent
        for path in (root / "src").rglob("*.py")
        if any(sign in path.read_text(encoding="utf-8") for sign in signs)
    }
    assert knowing == {PARSER}


def test_what_follows_scripts_knows_neither_slurm_nor_megatron(root: Path) -> None:
    for path in (root / "src" / "megatron_hcp" / "bash").rglob("*.py"):
        text = path.read_text(encoding="utf-8").lower().replace("megatron_hcp", "")
        assert not any(name in text for name in ("slurm", "sbatch", "megatron", "torch")), path


@pytest.mark.parametrize(
    ("text", "line", "word", "end"),
    [
        ("a\nif b; then\nc\n", 2, "if", "fi"),
        ("if a; then\nb\nif c; then\nd\nfi\n", 1, "if", "fi"),
        ("if a; then\nb\nelse\nc | d\n", 1, "if", "fi"),
        ("while a; do\nb\n", 1, "while", "done"),
        ("a\n\nfor x in 1 2; do\nb\n", 3, "for", "done"),
    ],
)
def test_what_bash_finds_no_end_of_is_refused_with_its_line(text: str, line: int, word: str, end: str) -> None:
    with pytest.raises(HcpError, match=f"^x.sh:{line}: this `{word}` is never closed.*wanted `{end}`"):
        parse(ScriptText(text.encode(), "x.sh"))
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).returncode == 2


def test_an_end_that_bash_finds_is_none_that_is_missing() -> None:
    # The grammar finds no end of the first `if`; the shell does.
    text = "if a; then\ncat <<EOF > x\nif [[ $b ]]; then\n$(c $((d-1)))\nEOF\nfi\ntrain\n"
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).returncode == 0
    assert parsed(text).statements


def test_the_tree_of_a_text_that_was_read_is_the_same_in_another_file() -> None:
    one, other = (parse(ScriptText(b"A=1 torchrun x.py\n", name)) for name in ("a.sh", "b.sh"))
    assert one.statements is other.statements and (one.text.file, other.text.file) == ("a.sh", "b.sh")
    for name in ("a.sh", "b.sh"):
        with pytest.raises(HcpError, match=name):
            parse(ScriptText(b"if true\nthen x\n", name))
