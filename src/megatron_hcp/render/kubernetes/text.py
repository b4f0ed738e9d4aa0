"""Objects of Kubernetes as YAML that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from megatron_hcp.render.targets.table import Target

_HEAD = """\
# {title}
# Written by `hcp render --target {name}`; it may be edited, and `hcp check` can read it too.
"""
_POLICY = """\
# Pods end with 75 where the job is to start again. After 16 (Megatron's rerun state machine wants another GPU) it
# starts again too, but only a cordoned node keeps it from the same one. All other codes are final, also 17, a failed
# validation.
"""


class _Writer(yaml.SafeDumper):
    """Texts of several lines are blocks, and no object is an alias of another."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Writer.add_representer(str, _text)


def manifest_text(target: Target, title: str, objects: Sequence[dict[str, Any]]) -> str:
    """The objects, one document each, under the lines that say what they are."""
    head = _HEAD.format(title=title, name=target.name) + (_POLICY if "ray" not in target.starts else "")
    return head + "".join("---\n" + yaml.dump(one, Dumper=_Writer, sort_keys=False, width=110) for one in objects)
