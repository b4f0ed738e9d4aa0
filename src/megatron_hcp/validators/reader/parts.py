"""Parts of upstream's functions as units: one call, the block that makes an object, guards on some arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.left_out import NOT_FOLLOWED
from megatron_hcp.validators.reader.prune import only_about
from megatron_hcp.validators.reader.sources import Defined
from megatron_hcp.validators.reader.statements import Body, Reader
from megatron_hcp.validators.reader.syntax import begins, blocks_of, guards_in, makes, names_a_field, nodes_in

_OWN = re.compile(r"\bself\.((?:ddp_)?config\.)")
"""A constructor's argument under the name that it keeps it by."""


class PartReader(Reader):
    """Reads whole functions, and parts of those that do much else."""

    def read_classes(self, names: Iterable[str]) -> list[str]:
        """Reads classes by their dotted names; returns the names of those that upstream's tree has."""
        found = []
        for dotted in names:
            module, _, name = dotted.rpartition(".")
            path = self.sources.module(module)
            if path is not None and name not in NOT_FOLLOWED and self.read(path, name):
                found.append(name)
        return found

    def read_decorated(self, path: str, decorator: str) -> tuple[str, ...]:
        """Reads the functions of a file that have a decorator; returns their names."""
        tree = self.sources.tree(path)
        names = tuple(
            line.name
            for line in (tree.body if tree is not None else ())
            if isinstance(line, ast.FunctionDef) and decorator in map(ast.unparse, line.decorator_list)
        )
        for name in names:
            self.read(path, name)
        return names

    def read_call(self, path: str, function: str, called: str, given: tuple[str, ...]) -> bool:
        """Makes a unit of one call with the arguments that a function gives it, `FUNCTION.CALLED`; False if not found.

        `given` are its parameters; others of the function stay unknown. Names that the function gives fields of a
        parameter, as in `train_config = cfg.train`, are theirs. What the call takes from a dict (`**`) is left out.
        """
        found = self.sources.find(path, function)
        if found is None or not isinstance(found.node, ast.FunctionDef):
            return False
        for call in nodes_in(found.node):
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == called:
                translator = self.translator_of(found, found.node)
                named = [line for line in found.node.body if names_a_field(line, given)]
                known = ast.Call(call.func, call.args, [one for one in call.keywords if one.arg is not None])
                lines = (*Body(translator).block(named, 0), f"do {translator.text(known)}")
                name = f"{function}.{called}"
                self.units[name] = Unit(name, "def", given, found.path, lines)
                self.finish()
                return True
        return False

    def read_block(self, path: str, function: str, made: str) -> bool:
        """Makes a unit of the block of a function that makes an object: `FUNCTION.NAME`, which returns it.

        It begins with the empty dict of its keywords, and ends where the name is assigned a call with `**`; False if
        the function has none.
        """
        found = self.sources.find(path, function)
        if found is None or not isinstance(found.node, ast.FunctionDef):
            return False
        for block in blocks_of(found.node):
            place = next((place for place, line in enumerate(block) if makes(line, made)), None)
            if place is not None:
                body = Body(translator := self.translator_of(found, found.node))
                begin = next((at for at in range(place, -1, -1) if begins(block[at])), 0)
                lines = (*body.block(block[begin : place + 1], 0), f"return {made}")
                self.methods |= translator.methods
                name = f"{function}.{made}"
                self.units[name] = Unit(name, "def", ("args",), found.path, lines)
                self.finish()
                return True
        return False

    def read_constructor(self, path: str, name: str, given: tuple[str, ...]) -> bool:
        """Makes a unit of the guards in a class's `__init__` that depend on some of its arguments alone.

        What else it calls is not read.
        """
        found = self.sources.find(path, name)
        if found is None or not isinstance(found.node, ast.ClassDef):
            return False
        method = self.translator_of(found, found.node).method(found, "__init__")
        return method is not None and self._guards(f"{name}.__init__", found, method[1].body, given)

    def read_builder(self, path: str, name: str, given: tuple[str, ...]) -> bool:
        """Makes a unit of the guards in a function of a file that depend on some of its arguments alone."""
        found = self.sources.find(path, name)
        if found is None or found.path != path or not isinstance(found.node, ast.FunctionDef):
            return False
        return self._guards(name, found, found.node.body, given)

    def _guards(self, name: str, found: Defined, body: list[ast.stmt], given: tuple[str, ...]) -> bool:
        assert isinstance(found.node, (ast.FunctionDef, ast.ClassDef))
        waiting, places = self._waiting[:], self._places.copy()
        body = guards_in(body)
        lines = [_OWN.sub(r"\1", line) for line in Body(self.translator_of(found, found.node)).block(body, 0)]
        self._waiting, self._places = waiting, places
        self.units[name] = Unit(name, "def", given, found.path, only_about(lines, given))
        return True
