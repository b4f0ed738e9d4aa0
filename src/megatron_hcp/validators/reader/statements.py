"""Translates upstream's functions and classes into units of the validators' program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from megatron_hcp.validators.program import UNREAD_BASE, Unit
from megatron_hcp.validators.reader.expressions import Scope, Translator, words_of
from megatron_hcp.validators.reader.lines import (
    CHANGES,
    GuardText,
    changed,
    fault_check,
    set_variable,
    variable_in,
    variable_of_call,
)
from megatron_hcp.validators.reader.sources import Defined, Sources, default_of, fields_in
from megatron_hcp.validators.reader.syntax import (
    chosen,
    copied_fields,
    imports_in,
    inner_functions,
    lambda_of,
    local_names,
    missing_in,
    negated,
    nodes_in,
    opened_files,
    packages_in,
    parameters_of,
    targets,
    with_arguments,
    with_free_names,
    without_fields,
)
from megatron_hcp.validators.reader.unbound import with_unbound_checks

_SAYS = ("print", "warn", "log", "debug", "info", "error")
"""How the names of functions begin that only say something."""
_MOST_UNITS = 600


class Reader:
    """Collects units: each function or class that a read one names is read too."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.units: dict[str, Unit] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self._waiting: list[tuple[str, Defined, ast.FunctionDef | ast.ClassDef]] = []
        self._classes: list[Defined] = []
        self.methods: set[str] = set()

    def register(self, name: str, found: Defined, node: ast.FunctionDef | ast.ClassDef) -> str:
        """The name of the unit of a definition, which is read later if it isn't yet."""
        place = (found.path, f"{found.name}:{node.name}")
        while self._places.setdefault(name, place) != place:
            name += "_"
        if name not in self.units and len(self._places) <= _MOST_UNITS:
            self._waiting.append((name, found, node))
        return name

    def read(self, path: str, name: str) -> bool:
        """Reads a function or class and all that it needs; False if the file has none of that name."""
        owner, dot, method = name.partition(".")
        found = self.sources.find(path, owner)
        if found is None or not isinstance(found.node, (ast.FunctionDef, ast.ClassDef)):
            return False
        node = found.node
        if dot:
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == method]
            if not inner:
                return False
            node = inner[0]
        self.register(name, found, node)
        self.finish()
        return True

    def finish(self) -> None:
        """Reads what is named until nothing new is, methods that are called on some object too."""
        while self._waiting:
            while self._waiting:
                wanted, found, node = self._waiting.pop()
                if wanted not in self.units:
                    self.units[wanted] = self._unit(wanted, found, node)
            for owner in self._classes:
                assert isinstance(owner.node, ast.ClassDef)
                for one in owner.node.body:
                    if isinstance(one, ast.FunctionDef) and one.name in self.methods:
                        self.register(f"{owner.name}.{one.name}", owner, one)

    def _unit(self, name: str, found: Defined, node: ast.FunctionDef | ast.ClassDef) -> Unit:
        if isinstance(node, ast.ClassDef):
            return self._class(name, found, node)
        node = with_arguments(with_free_names(node))
        translator = self.translator_of(found, node)
        body = Body(translator)
        lines = (*self._globals(found.path, node), *body.block(with_unbound_checks(node), 0))
        self.methods |= translator.methods
        outside = Translator(self.sources, self.register, Scope(found.path, (), {}))
        given = parameters_of(node)
        head = tuple(name if default is None else f"{name}={outside.text(default)}" for name, default in given)
        return Unit(name, "def", head, found.path, lines)

    def translator_of(self, found: Defined, node: ast.FunctionDef | ast.ClassDef) -> Translator:
        """What reads the expressions of a function."""
        owner = found if isinstance(found.node, ast.ClassDef) else None
        scope = Scope(found.path, local_names(node), imports_in(node), owner)
        scope.state = {name for line in nodes_in(node) if isinstance(line, ast.Global) for name in line.names}
        for inner, names in inner_functions(node):
            place = found if "self" in names else found._replace(node=None)
            unit = self.register(f"{node.name}.{inner.name}", place, inner)
            scope.inner[inner.name] = ast.parse(unit, mode="eval").body, [*map(ast.Name, names)]
        return Translator(self.sources, self.register, scope)

    def _globals(self, path: str, node: ast.FunctionDef) -> Iterator[str]:
        """The values that the global names which a function changes have before."""
        outside = Translator(self.sources, self.register, Scope(path, (), {}))
        for line in nodes_in(node):
            for name in line.names if isinstance(line, ast.Global) else ():
                yield f"{name} = {outside.text(ast.Name(name, ast.Load()))}"

    def _class(self, name: str, found: Defined, node: ast.ClassDef) -> Unit:
        translator = Translator(self.sources, self.register, Scope(found.path, (), {}))
        read = ((base, base.node) for base in translator.bases(found))
        bases = [self.register(base.name, base, inner) for base, inner in read if isinstance(inner, ast.ClassDef)]
        bases += [UNREAD_BASE] * (len(bases) < len(node.bases) - without_fields(node))
        lines = []
        for field in fields_in(node):
            default = default_of(field)
            value = missing_in(node, field) if default is None else translator.text(default)
            lines.append(f"{ast.unparse(field.target)} = {value}")
        for name_of_method in ("__init__", "__post_init__"):
            ready = translator.method(found, name_of_method)
            if ready is not None:
                self.register(f"{ready[0].name}.{name_of_method}", *ready)
        self._classes.append(found)
        return Unit(name, "class", tuple(bases), found.path, tuple(lines))


class Body:
    """The statements of one function."""

    def __init__(self, translator: Translator) -> None:
        self._text = translator.text
        self._translator = translator
        self._guards: list[Callable[[], GuardText]] = []
        """What gives the condition that keeps upstream out of each block around a statement; most aren't asked."""

    def block(self, lines: Iterable[ast.stmt], depth: int) -> Iterator[str]:
        for line in lines:
            yield from self._statement(line, depth)

    def _statement(self, line: ast.stmt, depth: int) -> Iterator[str]:
        pad = " " * depth
        if isinstance(line, ast.Assert):
            if self._translator.scope.is_state(line.test):
                return
            condition = self._condition(line.test)
            is_raise = condition.text in ("False", "0")
            yield self._stop(pad, line.msg) if is_raise else f"{pad}check {condition.line(line.msg)}"
        elif isinstance(line, ast.Raise):
            yield self._stop(pad, line.exc)
        elif isinstance(line, ast.If):
            yield from self._if(
                self._condition(line.test),
                cache(lambda: self._condition(negated(line.test))),
                line.body,
                line.orelse,
                depth,
            )
        elif isinstance(line, ast.Match):
            yield from self.block(chosen(line), depth)
        elif isinstance(line, ast.Try):
            yield from self._try(line, depth)
        elif isinstance(line, ast.With):
            self._translator.scope.opened |= opened_files(line)
            yield from self.block(line.body, depth)
        elif isinstance(line, ast.For) and (copied := copied_fields(line)):
            yield f"{pad}do {self._text(copied)}"
        elif isinstance(line, ast.For):
            body = list(self.block(line.body, depth + 1))
            if body:
                yield f"{pad}for {ast.unparse(line.target).strip('()')} in {self._text(line.iter)}"
                yield from body
        elif isinstance(line, ast.Return):
            yield f"{pad}return {self._text(line.value) if line.value else ''}".rstrip()
        elif isinstance(line, (ast.Break, ast.Continue)):
            yield pad + type(line).__name__.lower()
        elif isinstance(line, ast.Delete):
            for one in line.targets:
                yield pad + (
                    set_variable(self._text(name), "None") if (name := variable_in(one)) else f"del {ast.unparse(one)}"
                )
        elif isinstance(line, ast.While):
            if changed := sorted({ast.unparse(target) for one in nodes_in(line) for target in targets(one)}):
                yield f"{pad}forget {', '.join(changed)}"
        else:
            yield from self._change(line, pad)

    def _condition(self, test: ast.expr) -> GuardText:
        words = words_of(test)
        return GuardText(self._translator.text_of(words), words)

    def _stop(self, pad: str, said: ast.expr | None) -> str:
        condition = self._guards[-1]() if self._guards else GuardText("False")
        return f"{pad}stop {condition.line(said)}"

    def _change(self, line: ast.stmt, pad: str) -> Iterator[str]:
        if isinstance(line, ast.Assign):
            text = self._text(line.value)
            for one in line.targets:
                name = variable_in(one)
                yield pad + (f"{self._target(one)} = {text}" if name is None else set_variable(self._text(name), text))
        elif isinstance(line, ast.AnnAssign) and line.value is not None:
            yield f"{pad}{self._target(line.target)} = {self._text(line.value)}"
        elif isinstance(line, ast.AugAssign):
            whole = ast.BinOp(ast.parse(ast.unparse(line.target), mode="eval").body, line.op, line.value)
            yield f"{pad}{self._target(line.target)} = {self._text(ast.fix_missing_locations(whole))}"
        elif isinstance(line, ast.FunctionDef):
            if line.name in self._translator.scope.inner:
                return
            if len(line.body) == 1 and isinstance(line.body[0], ast.Return) and line.body[0].value is not None:
                names = ", ".join(one.arg for one in line.args.args)
                yield f"{pad}{line.name} = {self._text(lambda_of(names, line.body[0].value))}"
            else:
                yield f"{pad}{line.name} = ..."
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
            yield from self._call(line.value, pad)

    def _call(self, call: ast.Call, pad: str) -> Iterator[str]:
        name = ast.unparse(call.func)
        if name == "object.__setattr__":  # how a frozen dataclass sets its own fields
            call = ast.Call(ast.Name("setattr"), call.args, [])
        owner, _, method = name.rpartition(".")
        if (variable := variable_of_call(call, self._text)) is not None:
            yield pad + variable
            return
        if name in ("exit", "quit", "sys.exit"):
            yield self._stop(pad, call)
            return
        if method.lstrip("_").startswith(_SAYS) or owner in ("warnings", "logger", "logging"):
            return
        if method in CHANGES and owner and "(" not in owner:
            target = ast.parse(owner, mode="eval").body
            text = changed(owner, method, [*map(self._text, call.args)], self._text(target))
            yield pad + (f"forget {owner}" if text is None else f"{self._target(target)} = {text}")
            return
        if (text := self._text(call)) != "...":
            yield f"{pad}do {text}"

    def _target(self, target: ast.expr) -> str:
        if isinstance(target, ast.Subscript):
            return f"{ast.unparse(target.value)}[{self._text(target.slice)}]"
        return ast.unparse(target).strip("()")

    def _if(
        self,
        test: GuardText,
        negated: Callable[[], GuardText],
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        depth: int,
    ) -> Iterator[str]:
        pad = " " * depth
        self._guards.append(negated)
        inside = list(self.block(body, depth + 1))
        self._guards[-1] = lambda: test
        other = list(self.block(orelse, depth + 1))
        self._guards.pop()
        if not inside and not other:
            return
        if not inside:
            yield f"{pad}if {negated().text}"
            yield from other
            return
        yield f"{pad}if {test.text}"
        yield from inside
        if other:
            yield f"{pad}else"
            yield from other

    def _try(self, line: ast.Try, depth: int) -> Iterator[str]:
        packages = packages_in(line.body)
        handlers = [part for handler in line.handlers for part in handler.body]
        body = [*line.body, *line.orelse]
        if packages and len(packages) == len(line.body):
            test = f"installed({packages[0].partition('.')[0]!r})"
            yield from self._if(GuardText(test), lambda: GuardText(f"not {test}"), body, handlers, depth)
        elif line.handlers and all(isinstance(one.body[-1], ast.Raise) for one in line.handlers):
            for one in body:  # a start that goes on has run it to its end
                yield " " * depth + fault_check(one, line.handlers[0].body[-1], self._text)
                yield from self._statement(one, depth)
        else:
            yield from self._if(GuardText("..."), lambda: GuardText("..."), body, handlers, depth)
        yield from self.block(line.finalbody, depth)
