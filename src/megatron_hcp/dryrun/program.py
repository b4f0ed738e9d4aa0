"""Which of upstream's programs trains the launch's model, and where upstream's code lies."""

from __future__ import annotations

import os
import re

from megatron_hcp.dryrun.words import is_packed
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.upstream_folder import unpacked_releases
from megatron_hcp.launch.fact import Launch, UpstreamTree

_NAMED = re.compile(r"\bpretrain_[a-z0-9_]{1,40}\.py\b")
_HYBRID = ("hybrid_layer_pattern", "hybrid_override_pattern", "hybrid_attention_ratio", "is_hybrid_model")
"""Settings of a model with Mamba layers, which has a program of its own: pretrain_mamba.py until 0.17."""


def program_of(launch: Launch, root: str) -> str:
    """The program's path: the one that the launch names, else by its model; "" where the tree has none.

    A wheel has none: then `megatron_hcp.pretend.program` stands for pretrain_gpt.py.

    Raises:
        HcpError: the launch needs another program, and the tree has none.
    """
    is_hybrid = any(setting.key in _HYBRID and setting.value is not False for setting in launch.reading.settings)
    usual = ("pretrain_hybrid.py", "pretrain_mamba.py") if is_hybrid else ("pretrain_gpt.py",)
    named = dict.fromkeys(_NAMED.findall(launch.reading.text or ""))
    for name in (*named, *usual):
        if os.path.isfile(os.path.join(root, name)):
            return os.path.join(root, name)
    if is_hybrid or is_packed(launch) or any(name != "pretrain_gpt.py" for name in named):
        raise HcpError(
            f"found no {next(iter(named), usual[0])} in {root}", wanted="a checkout, which has upstream's programs"
        )
    return ""


_BRIDGE = ("megatron-bridge", "megatron/bridge")
_FRAMEWORKS = {
    "bridge": (_BRIDGE,),
    "slime": (("slime", "slime/backends/megatron_utils"),),
    "ms-swift": (("ms-swift", "swift/megatron"),),
    "nemo-rl": (("nemo-rl", "nemo_rl/models/megatron"), _BRIDGE),
    "verl": (("verl", "verl/workers/engine/megatron"), _BRIDGE),
}
"""Of each framework above Megatron-LM, its repository and a folder that its code has; then those that it builds on."""


def framework_trees(launch: Launch) -> tuple[UpstreamTree, ...]:
    """The trees of the framework that trains, its own first, their paths the folders to import from.

    There are none for Megatron-LM itself.

    Raises:
        HcpError: one is not named, or has no such code.
    """
    return tuple(_tree(launch, *asked) for asked in _FRAMEWORKS.get(launch.dialect, ()))


def _tree(launch: Launch, repo: str, part: str) -> UpstreamTree:
    tree = next((one for one in launch.reading.upstream if one.repo == repo), None)
    path = os.path.abspath(tree.path) if tree else ""
    for root in (os.path.join(path, "src"), path):
        if tree and os.path.isdir(os.path.join(root, part)):
            return tree._replace(path=root)
    raise HcpError(
        f"found no {part} in {path}" if tree else f"found no code of {repo} to run",
        wanted="--upstream with its checkout or wheel, beside that of Megatron-LM; or --upstream installed",
        do="name it: it is executed",
    )


def trees_of(launch: Launch) -> tuple[UpstreamTree, UpstreamTree | None]:
    """Megatron-LM's tree, and Transformer Engine's: named, or an unpacked wheel of the stated release.

    Raises:
        HcpError: there is no tree of Megatron-LM, with its training unless a framework has its own.
    """
    part = "megatron/core" if launch.dialect in ("bridge", "verl", "ms-swift", "nemo-rl") else "megatron/training"
    named = {tree.repo: tree for tree in launch.reading.upstream}
    tree = named.get("megatron-lm")
    if tree is None or not os.path.isdir(os.path.join(tree.path, part)):
        raise HcpError(
            "found no code of Megatron-LM to run" if tree is None else f"found no {part} in {tree.path}",
            wanted="--upstream with a checkout, or a wheel of megatron-core 0.17 or newer; or --upstream installed",
            do="name it: it is executed",
        )
    te = named.get("transformer-engine")
    stated = launch.facts["te"].value if "te" in launch.facts else None
    if te is None and stated is not None:
        for version, folder in unpacked_releases("transformer-engine").items():
            if f"{version}.".startswith(f"{stated}."):
                te = UpstreamTree("transformer-engine", str(folder), version)
    return tree, te
