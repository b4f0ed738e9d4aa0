"""Names that a log states and that reach a command: each is taken by its grammar, or not at all.

What triage suggests, agents run. A text that fits here needs no quoting in any shell.
"""

from __future__ import annotations

import re

_JOB = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,9})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")


def job_id(text: object) -> str | None:
    """A job's id as Slurm writes it: `12`, `12_3` (an array's), `12+1` (of several parts); None where it is none."""
    return text if isinstance(text, str) and _JOB.fullmatch(text) else None


OF_EACH = frozenset(("localhost", "localhost.localdomain", "localhost4", "localhost6", "127.0.0.1", "::1", "0.0.0.0"))
"""Names that each node has for itself."""


def named_node(text: object) -> str | None:
    """A node's name that other nodes know too; None where it is none.

    >>> named_node("dgx-17"), named_node("localhost")
    ('dgx-17', None)
    """
    return None if text in OF_EACH else node_name(text)


def node_name(text: object) -> str | None:
    """A node's name or address; None where it is none.

    >>> node_name("dgx-17"), node_name("10.0.0.2"), node_name("-rf"), node_name("n1;reboot")
    ('dgx-17', '10.0.0.2', None, None)
    """
    return text if isinstance(text, str) and _NODE.fullmatch(text) else None
