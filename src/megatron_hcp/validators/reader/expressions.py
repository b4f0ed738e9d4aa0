"""Translates upstream's expressions into the validators' notation."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection

from megatron_hcp.validators.builtin import BUILTIN
from megatron_hcp.validators.reader.left_out import NOT_FOLLOWED
from megatron_hcp.validators.reader.sources import Defined, Imports, Sources, is_enum, member_of
from megatron_hcp.validators.reader.syntax import alternatives, is_unread, methods_of, unread

Register = Callable[[str, Defined, ast.FunctionDef | ast.ClassDef], str]
"""Names the unit of a function or class: (wanted name, where it is, its definition)."""

_VERSIONS = {
    "is_te_min_version": "te", "is_torch_min_version": "torch", "is_fa_min_version": "flash_attn",
    "is_flashinfer_min_version": "flashinfer", "is_mamba_min_version": "mamba_ssm",
    "is_causal_conv1d_min_version": "causal_conv1d", "is_transformers_min_version": "transformers",
}  # fmt: skip
_VERSION_OF = {"get_te_version": "te", "get_torch_version": "torch", "get_fa_version": "flash_attn"}
_MODULES = {"megatron.core": "mcore", "transformer_engine": "te", "torch": "torch", "transformers": "transformers"}
_LEAST_VERSION = re.compile(r"[\w.]+\(([\w.]+)\.__version__\) >= [\w.]+\('([\w.]+)'\)")
"""A release that is compared as it stands: `version.parse(megatron.core.__version__) >= version.parse('0.16.0rc0')`."""
_INSTANTIATES = ("omega_conf_to_dataclass", "instantiate")
"""What makes an object of the class that a section's `_target_` names."""
_ANSWERED = {
    "torch.distributed.is_initialized()": "True", "torch.distributed.get_rank()": "0",
    "torch.distributed.get_world_size()": "world_size()", "get_world_size_safe()": "world_size()",
    "get_rank_safe()": "0", "cluster.world_size()": "world_size()", "torch.is_grad_enabled()": "trains()",
    "distributed_context.tp_size": "config['dtensor_cfg'].get('tensor_parallel_size', 1)",
    "distributed_context.cp_size": "config['dtensor_cfg'].get('context_parallel_size', 1)",
    "fsdp2_config.sequence_parallel": "config['dtensor_cfg']['sequence_parallel']",
}  # fmt: skip
"""What is so when a training starts; NeMo-RL's mesh of devices has the sizes that it was asked for."""
_FIELDS = {text.rpartition(".")[2] for text in _ANSWERED if text[-1] != ")"}
_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_ALIASES = {
    "torch.float": "torch.float32", "torch.half": "torch.float16", "torch.double": "torch.float64",
    "os.environ": "environ",
}  # fmt: skip
_KEPT = {*BUILTIN, "list", "tuple", "int", "float", "str", "bool", "set", "dict"}
_LONGEST = 1_500
_NEGATED = re.compile(r"\b(and|or) \(not ([\w.]+)\)(?= and | or |\)|$)")
"""Brackets that `ast.unparse` writes and a person would not."""


class Scope:
    """Where an expression stands: its file, the names that are local, what imports of the function bind, its class."""

    def __init__(self, path: str, local: Collection[str], imports: Imports, owner: Defined | None = None) -> None:
        self.path, self.local, self.imports, self.owner = path, set(local), imports, owner
        self.state: set[str] = set()
        """The global names that a function changes."""
        self.inner: dict[str, tuple[ast.expr, list[ast.expr]]] = {}
        """What is called for each function that is defined in this one, and which names of this one it is given."""
        self.opened: dict[str, ast.expr] = {}
        """The paths of files that a `with` opens, by the names that it gives them."""

    def is_state(self, test: ast.expr) -> bool:
        """Whether an assert is about what upstream itself did before: that a group is not there yet."""
        return (
            isinstance(test, ast.Compare)
            and isinstance(test.left, ast.Name)
            and test.left.id in self.state
            and isinstance(test.comparators[0], ast.Constant)
            and test.comparators[0].value is None
        )


def words_of(tree: ast.expr) -> str:
    """An expression's text as upstream has it, whatever its layout."""
    return _NEGATED.sub(r"\1 not \2", ast.unparse(tree))


class Translator(ast.NodeTransformer):
    """Rewrites an expression (a copy of it: the tree is changed)."""

    def __init__(self, sources: Sources, register: Register, scope: Scope) -> None:
        self.sources, self.register, self.scope = sources, register, scope
        self._texts: dict[str, str] = {}
        self.methods: set[str] = set()
        """The names of methods that are called on values."""

    def text(self, tree: ast.expr) -> str:
        return self.text_of(ast.unparse(tree))

    def text_of(self, words: str) -> str:
        """The notation for upstream's own words."""
        if words not in self._texts:
            text = words_of(self.visit(ast.parse(words, mode="eval").body))
            self._texts[words] = text if "\n" not in text and len(text) <= _LONGEST else "..."
        return self._texts[words]

    def meaning(self, tree: ast.expr) -> Defined | None:
        """What a dotted name means, where it begins with a name that is not local."""
        if isinstance(tree, ast.Name):
            if tree.id in self.scope.local:
                return None
            if tree.id in self.scope.imports:
                return self.sources.imported(self.scope.path, self.scope.imports[tree.id], tree.id)
            return self.sources.find(self.scope.path, tree.id)
        if isinstance(tree, ast.Attribute):
            owner = self.meaning(tree.value)
            if owner is not None and owner.node is None:
                if not owner.path:
                    return Defined("", f"{owner.name}.{tree.attr}")
                found = self.sources.find(owner.path, tree.attr)
                file = self.sources.module(f"{owner.name}.{tree.attr}") if found is None else None
                return Defined(file, f"{owner.name}.{tree.attr}") if file else found
        return None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            return unread()
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.scope.local or node.id in _KEPT or not isinstance(node.ctx, ast.Load):
            return node
        found = self.meaning(node)
        if found is not None:
            return self._reference(found)
        return unread() if self.scope.owner is None else self._constant(self.scope.owner, node.id)

    def _reference(self, found: Defined) -> ast.expr:
        node = found.node
        if isinstance(node, ast.FunctionDef):
            return unread() if node.name in NOT_FOLLOWED else ast.Name(self.register(found.name, found, node))
        if isinstance(node, ast.ClassDef):
            is_known = is_enum(node) or node.name in NOT_FOLLOWED
            return ast.Name(node.name if is_known else self.register(found.name, found, node))
        if node is None:
            name = _ALIASES.get(found.name, found.name)
            if found.path or name.partition(".")[0] in ("math", "sys", "logging", "warnings", "os"):
                return unread()
            return ast.Name(name if name.startswith("torch.") and name.count(".") == 1 else name.rpartition(".")[2])
        inside = Translator(self.sources, self.register, Scope(found.path, (), {}))
        text = inside.text(node)
        return unread() if "..." in text else ast.parse(text, mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr in _FIELDS and (text := ast.unparse(node)) in _ANSWERED:
            return ast.parse(_ANSWERED[text], mode="eval").body
        found = self.meaning(node)
        if found is not None:
            return self._reference(found)
        owner = self.meaning(node.value)
        if owner is not None and isinstance(owner.node, ast.ClassDef):
            if not is_enum(owner.node):
                return self._constant(owner, node.attr)
            value = member_of(owner.node, node.attr)
            return node if value is None else ast.Constant(value)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and self.scope.owner is not None:
            method = self.method(self.scope.owner, node.attr)
            if method is not None and any(ast.unparse(one) == "property" for one in method[1].decorator_list):
                return ast.Call(ast.Name(self._unit_of_method(method)), [node.value], [])
        node.value = self.visit(node.value)
        if node.attr == "value" and isinstance(node.value, ast.Constant):  # an enum's member is its value already
            return node.value
        return unread() if is_unread(node.value) else node

    def _constant(self, owner: Defined, name: str) -> ast.expr:
        """A constant of a class."""
        assert isinstance(owner.node, ast.ClassDef)
        for line in owner.node.body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
                inside = Translator(self.sources, self.register, Scope(owner.path, (), {}, owner))
                return ast.parse(inside.text(line.value), mode="eval").body
        return unread()

    def method(self, owner: Defined, name: str, own: bool = True) -> tuple[Defined, ast.FunctionDef] | None:
        """The method of a class, or that of its bases, and the class that has it."""
        assert isinstance(owner.node, ast.ClassDef)
        if own and (method := methods_of(owner.node).get(name)) is not None:
            return owner, method
        found = (self.method(base, name) for base in self.bases(owner))
        return next((one for one in found if one is not None), None)

    def bases(self, owner: Defined) -> list[Defined]:
        assert isinstance(owner.node, ast.ClassDef)
        outer = Translator(self.sources, self.register, Scope(owner.path, (), {}))
        found = map(outer.meaning, owner.node.bases)
        return [base for base in found if base is not None and isinstance(base.node, ast.ClassDef)]

    def _unit_of_method(self, found: tuple[Defined, ast.FunctionDef]) -> str:
        owner, node = found
        return self.register(f"{owner.name}.{node.name}", owner, node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 and ast.unparse(node.comparators[0]) == "os.environ":
            unset = ast.IsNot() if isinstance(node.ops[0], ast.In) else ast.Is()
            return ast.Compare(ast.Call(ast.Name("env"), [node.left], []), [unset], [ast.Constant(None)])
        if (least := _LEAST_VERSION.fullmatch(ast.unparse(node))) is not None and least[1] in _MODULES:
            return ast.Call(ast.Name("at_least"), [ast.Constant(_MODULES[least[1]]), ast.Constant(least[2])], [])
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "os.environ":
            return ast.Call(ast.Name("env"), [node.slice], [])
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if name in _ENVIRONMENT:
            return ast.Call(ast.Name("env"), [self.visit(one) for one in node.args], [])
        if last in _VERSIONS and node.args:
            equal = [self.visit(one) for one in (*node.args, *(keyword.value for keyword in node.keywords))]
            return ast.Call(ast.Name("at_least"), [ast.Constant(_VERSIONS[last]), *equal], [])
        if last in _VERSION_OF:
            return ast.Call(ast.Name("version"), [ast.Constant(_VERSION_OF[last])], [])
        if last in _INSTANTIATES and len(node.args) == 1:
            return ast.Call(ast.Name("instantiate"), [self.visit(node.args[0])], [])
        if last == "model_dump" and isinstance(node.func, ast.Attribute) and "model_validate(" in name:
            return self.visit(node.func.value)  # type: ignore[no-any-return]
        if last == "model_validate" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            found = self.meaning(node.func.value)
            if found is not None and isinstance(found.node, ast.ClassDef) and found.node.name not in NOT_FOLLOWED:
                kind, section = self._reference(found), self.visit(node.args[0])
                return ast.Call(ast.Name("model_validate"), [kind, section], [])
        if last in ("PkgVersion", "Version"):
            return ast.Call(ast.Name("release"), [self.visit(one) for one in node.args], [])
        if last == "get_device_capability":
            return ast.Call(ast.Name("capability"), [], [])
        if last == "get_device_arch_version":
            return ast.Subscript(ast.Call(ast.Name("capability"), [], []), ast.Constant(0), ast.Load())
        if name == "yaml.safe_load" and (path := self.scope.opened.get(", ".join(map(ast.unparse, node.args)))):
            return ast.Call(ast.Name("yaml_file"), [self.visit(path)], [])
        if last == "cast":
            return self.visit(node.args[-1])  # type: ignore[no-any-return]
        if (text := ast.unparse(node)) in _ANSWERED:
            return ast.parse(_ANSWERED[text], mode="eval").body
        if name == "isinstance" and len(node.args) == 2:
            node.args[1] = alternatives(node.args[1])
        if name in ("os.path.exists", "os.path.isfile", "os.path.isdir"):
            paths = [self.visit(one) for one in node.args]  # whatever is there, it isn't read
            return ast.Call(
                ast.Name("exists"), [one if "..." not in words_of(one) else ast.Constant("") for one in paths], []
            )
        if name in ("np.prod", "math.prod") and len(node.args) == 1:
            return ast.Call(ast.Name("prod"), [self.visit(node.args[0])], [])
        if name == "re.sub" and len(node.args) == 3:
            return ast.Call(ast.Name("unrolled"), [self.visit(node.args[0]), self.visit(node.args[2])], [])
        if name in ("dataclasses.fields", "fields"):
            return ast.Call(ast.Name("fields"), [self.visit(one) for one in node.args], [])
        if (called := self._called(node)) is None:
            return unread()
        function, first = called
        named = [ast.keyword(one.arg, self.visit(one.value)) for one in node.keywords]
        return ast.Call(function, [*first, *(self.visit(one) for one in node.args)], named)

    def _called(self, node: ast.Call) -> tuple[ast.expr, list[ast.expr]] | None:
        """(what is called, the arguments before the written ones); None if it is not known."""
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in self.scope.inner:
                return self.scope.inner[function.id]
            if function.id in self.scope.local or function.id in BUILTIN:
                return function, []
            found = self.meaning(function)
            if found is not None and isinstance(found.node, (ast.FunctionDef, ast.ClassDef)):
                if found.node.name in NOT_FOLLOWED:
                    return None
                if isinstance(found.node, ast.ClassDef) and is_enum(found.node):
                    return None
                return self._reference(found), []
            return None
        if not isinstance(function, ast.Attribute):
            return None
        after = self._super_of(function.value)
        if after is not None:
            method = self.method(after, function.attr, own=False)
            return None if method is None else (ast.Name(self._unit_of_method(method)), [ast.Name("self")])
        if isinstance(function.value, ast.Name) and function.value.id == "self" and self.scope.owner is not None:
            method = self.method(self.scope.owner, function.attr)
            if method is not None:
                static = any(ast.unparse(one) == "staticmethod" for one in method[1].decorator_list)
                return ast.Name(self._unit_of_method(method)), [] if static else [ast.Name("self")]
        found = self.meaning(function)
        if found is not None:
            return (self._reference(found), []) if isinstance(found.node, (ast.FunctionDef, ast.ClassDef)) else None
        owner = self.meaning(function.value)
        if owner is not None and isinstance(owner.node, ast.ClassDef):
            method = self.method(owner, function.attr)
            if method is None or any(ast.unparse(one) == "classmethod" for one in method[1].decorator_list):
                return None
            return ast.Name(self._unit_of_method(method)), []  # static, or called with its object
        value = self.visit(function.value)
        self.methods.add(function.attr)
        return None if is_unread(value) else (ast.Attribute(value, function.attr, ast.Load()), [])

    def _super_of(self, tree: ast.expr) -> Defined | None:
        """The class after which `super()`, or `super(CLASS, self)`, looks for a method."""
        if not isinstance(tree, ast.Call) or ast.unparse(tree.func) != "super" or self.scope.owner is None:
            return None
        named = self.meaning(tree.args[0]) if tree.args else self.scope.owner
        return named if named is not None and isinstance(named.node, ast.ClassDef) else None
