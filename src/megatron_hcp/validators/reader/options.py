"""Reads the options of an argparse parser: calls of `add_argument`, and groups made of dataclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from megatron_hcp.validators.given.options import TEXT_AS_BOOL, ParserOption
from megatron_hcp.validators.reader.expressions import Scope, Translator
from megatron_hcp.validators.reader.sources import Defined, Imports, Sources, default_of, fields_in, is_enum, member_of
from megatron_hcp.validators.reader.syntax import nodes_in

_FACTORIES = "Factory"
_RESET = "reset_arg"
"""slime's and miles' function that gives an option of Megatron-LM another default, or adds it."""
_ON_OR_OFF = "argparse.BooleanOptionalAction"
_Named = dict[str, ast.expr]


class OptionReader:
    """Follows the functions that add options to a parser, in order."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.options: list[ParserOption] = []
        self._seen: set[tuple[str, str]] = set()

    def read(self, path: str, function: str) -> None:
        found = self.sources.find(path, function)
        if found is None or not isinstance(found.node, ast.FunctionDef) or (found.path, found.name) in self._seen:
            return
        self._seen.add((found.path, found.name))
        self._function(found.path, found.node)

    def _function(self, path: str, node: ast.FunctionDef) -> None:
        imports: Imports = {}
        lists: _Named = {}
        factories: dict[str, ast.Call] = {}
        for line in nodes_in(node):
            if isinstance(line, (ast.Import, ast.ImportFrom)):
                imports |= {alias.asname or alias.name.partition(".")[0]: line for alias in line.names}
            elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                lists[line.targets[0].id] = line.value
                if isinstance(line.value, ast.Call) and ast.unparse(line.value.func).endswith(_FACTORIES):
                    factories[line.targets[0].id] = line.value
        translator = Translator(self.sources, lambda name, *_: name, Scope(path, (), imports))
        for call in sorted((one for one in nodes_in(node) if isinstance(one, ast.Call)), key=lambda one: one.lineno):
            name = ast.unparse(call.func)
            if name.endswith(".add_argument") or name == _RESET:
                self._argument(call, translator)
            elif name.endswith(".build_group"):
                made = call.func.value if isinstance(call.func, ast.Attribute) else call
                factory = factories.get(made.id) if isinstance(made, ast.Name) else made
                if isinstance(factory, ast.Call):
                    self._group(factory, lists, translator)
            elif isinstance(call.func, ast.Name) and call.args and ast.unparse(call.args[0]) in ("parser", "group"):
                meant = translator.meaning(call.func)
                if meant is not None and meant.path:
                    self.read(meant.path, meant.name)

    def _argument(self, call: ast.Call, translator: Translator) -> None:
        names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        if names and names[0].startswith("-"):
            self._add(names, named, translator)

    def _add(self, names: list[str], named: _Named, translator: Translator) -> None:
        dest = _text(named.get("dest")) or next(iter(name for name in names if name.startswith("--"))).lstrip(
            "-"
        ).replace("-", "_")
        action = _text(named.get("action")) or "store"
        if action in ("help", "version"):
            return
        if "action" in named and ast.unparse(named["action"]) == _ON_OR_OFF:
            unset = named.get("default", ast.Constant(None))
            on: _Named = {"dest": ast.Constant(dest), "action": ast.Constant("store_true"), "default": unset}
            self._add(names, on, translator)
            action, names = "store_false", [f"--no{name[1:]}" for name in names]
            named = {"default": unset}
        kind, choices = self._type(named, translator)
        default = named.get("default")
        if default is None:
            default = ast.Constant({"store_true": False, "store_false": True}.get(action))
        nargs = named.get("nargs")
        const = named.get("const")
        self.options.append(
            ParserOption(
                tuple(names),
                dest,
                action,
                kind,
                "" if nargs is None else str(getattr(nargs, "value", "?")),
                translator.text(default),
                choices,
                "" if const is None else translator.text(const),
            )
        )

    def _type(self, named: _Named, translator: Translator) -> tuple[str, str]:
        """(type, choices): choices of an enum of texts are `NAME=VALUE`; a short function is written as a lambda."""
        written = named.get("type")
        listed = named.get("choices")
        choices = "" if listed is None else translator.text(listed)
        if written is None:
            return "str", choices
        path, short = translator.scope.path, written if isinstance(written, ast.Lambda) else None
        found = translator.meaning(written)
        if found is not None and isinstance(found.node, ast.FunctionDef):
            path, short = found.path, _as_lambda(found.node)
        if short is not None:
            scope = Scope(path, [argument.arg for argument in short.args.args], {})
            text = Translator(self.sources, lambda name, *_: name, scope).text(short)
            if "..." not in text or short is written:
                return text, choices
        return ast.unparse(written).rpartition(".")[2], choices

    # The fields of a dataclass: transformers/hf_argparser.py `_add_dataclass_arguments`

    def of_dataclass(self, path: str, name: str) -> list[ParserOption]:
        """The options that HfArgumentParser makes of a dataclass and its bases."""
        found = self.sources.find(path, name)
        for where, field in self._fields(found) if found is not None else ():
            translator = Translator(self.sources, lambda name, *_: name, Scope(where, (), {}))
            assert isinstance(field.target, ast.Name)
            self._argument_of(field.target.id, field, translator)
        return list({option.dest: option for option in self.options}.values())

    def _argument_of(self, name: str, field: ast.AnnAssign, translator: Translator) -> None:
        default = default_of(field)
        found = self._annotated(field.annotation, translator)
        named: _Named = {**found, "dest": ast.Constant(name), "default": default or ast.Constant(None)}
        if ast.unparse(named.get("type", ast.Constant(None))) == "bool":
            named |= {"type": ast.Name(TEXT_AS_BOOL), "nargs": ast.Constant("?"), "const": ast.Constant(True)}
        self._add([f"--{name}"], named, translator)

    # Groups made of dataclasses: megatron/training/argument_utils.py `ArgumentGroupFactory`

    def _group(self, factory: ast.Call, lists: _Named, translator: Translator) -> None:
        found = translator.meaning(factory.args[0])
        if found is None or not isinstance(found.node, ast.ClassDef):
            return
        excluded = next((keyword.value for keyword in factory.keywords if keyword.arg == "exclude"), None)
        if isinstance(excluded, ast.Name):
            excluded = lists.get(excluded.id)
        names = (
            {_text(item) for item in excluded.elts} if isinstance(excluded, (ast.List, ast.Tuple, ast.Set)) else set()
        )
        fields: dict[str, tuple[ast.AnnAssign, Translator]] = {}
        for path, field in self._fields(found):
            assert isinstance(field.target, ast.Name)
            fields[field.target.id] = field, Translator(self.sources, lambda name, *_: name, Scope(path, (), {}))
        for name, (field, inside) in fields.items():
            if name not in names and not _is_internal(field):
                self._field(name, field, inside)

    def _fields(self, found: Defined) -> Iterator[tuple[str, ast.AnnAssign]]:
        assert isinstance(found.node, ast.ClassDef)
        outer = Translator(self.sources, lambda name, *_: name, Scope(found.path, (), {}))
        for base in reversed(outer.bases(found)):
            yield from self._fields(base)
        for field in fields_in(found.node):
            yield found.path, field

    def _field(self, name: str, field: ast.AnnAssign, translator: Translator) -> None:
        default = default_of(field) or ast.Constant(None)
        named: _Named = {"dest": ast.Constant(name), "default": default}
        texts = [f"--{name.replace('_', '-')}"]
        named |= self._annotated(field.annotation, translator)
        if ast.unparse(named.get("type", ast.Constant(None))) == "bool" and "nargs" not in named:
            on = isinstance(default, ast.Constant) and not default.value
            named["action"] = ast.Constant("store_true" if on else "store_false")
            del named["type"]
            if not on:
                texts = [f"--no{texts[0][1:]}", f"--disable{texts[0][1:]}"]
        meta = _meta(field)
        if "arg_names" in meta:
            listed = meta.pop("arg_names")
            texts = [_text(item) for item in listed.elts] if isinstance(listed, (ast.List, ast.Tuple)) else texts
        self._add(texts, {**named, **meta}, translator)

    def _annotated(self, annotation: ast.expr, translator: Translator) -> _Named:
        """type, nargs and choices as `_extract_type` infers them."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        if isinstance(annotation, ast.BinOp):
            return self._annotated(annotation.left, translator)
        if isinstance(annotation, ast.Subscript):
            kind = ast.unparse(annotation.value).rpartition(".")[2].lower()
            inner = annotation.slice
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if kind in ("optional", "union"):
                return self._annotated(parts[0], translator)
            if kind == "list":
                return {**self._annotated(parts[0], translator), "nargs": ast.Constant("+")}
            if kind == "literal":
                first = parts[0].value if isinstance(parts[0], ast.Constant) else ""
                return {"type": ast.Name(type(first).__name__), "choices": ast.List(list(parts), ast.Load())}
            return {}
        found = translator.meaning(annotation)
        if found is not None and isinstance(found.node, ast.ClassDef) and is_enum(found.node):
            members = [
                line.targets[0].id
                for line in found.node.body
                if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
            ]
            pairs = ((one, member_of(found.node, one)) for one in members)
            texts: list[ast.expr] = [ast.Constant(one if value is None else f"{one}={value}") for one, value in pairs]
            return {"type": ast.Name(found.node.name), "choices": ast.List(texts, ast.Load())}
        return {"type": annotation}


def _as_lambda(function: ast.FunctionDef) -> ast.Lambda | None:
    """A function that only returns, after tests if need be, as one expression; None for any other."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return None
    found = body[-1].value
    for line in reversed(body[:-1]):
        inner = line.body[0] if isinstance(line, ast.If) and len(line.body) == 1 and not line.orelse else None
        if not isinstance(line, ast.If) or not isinstance(inner, ast.Return) or inner.value is None:
            return None
        found = ast.IfExp(line.test, inner.value, found)
    names = [ast.arg(argument.arg) for argument in function.args.args]
    return ast.Lambda(ast.arguments([], names, None, [], [], None, []), found)


def _text(tree: ast.expr | None) -> str:
    return tree.value if isinstance(tree, ast.Constant) and isinstance(tree.value, str) else ""


def _is_internal(field: ast.AnnAssign) -> bool:
    value = field.value
    return isinstance(value, ast.Call) and any(
        keyword.arg == "init" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in value.keywords
    )


def _meta(field: ast.AnnAssign) -> _Named:
    """The keywords of `argparse_meta` in a field's metadata."""
    value = field.value
    for keyword in value.keywords if isinstance(value, ast.Call) else ():
        if keyword.arg == "metadata" and isinstance(keyword.value, ast.Dict):
            for key, inner in zip(keyword.value.keys, keyword.value.values):
                if _text(key) == "argparse_meta" and isinstance(inner, ast.Dict):
                    return {_text(one): item for one, item in zip(inner.keys, inner.values)}
    return {}
