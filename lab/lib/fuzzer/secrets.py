"""Plants a credential where people leave them: in a script, a configuration, a log."""

from __future__ import annotations

import os
import string
from random import Random

Files = list[tuple[str, bytes]]
_LETTERS = string.ascii_letters + string.digits
_SHAPES = (
    ("hf_", 34),
    ("ghp_", 36),
    ("glpat-", 20),
    ("npm_", 36),
    ("AKIA", 16),
    ("xoxb-1234567890-", 24),
    ("sk-ant-", 40),
    ("nvapi-", 60),
    ("glsa_", 40),
    ("hf_oauth_", 40),
)
"""How issuers' tokens begin, and the letters that follow."""
_IN_SHELL = (
    "export HF_TOKEN={}",
    "curl -H 'Authorization: Bearer {}' https://x",
    "git clone https://u:{}@x/y",
    "X={}",
    "echo {} | docker login --password-stdin",
    "wandb login {}",
    "mysql -u x -p{} y",
)
_IN_YAML = ("hf_token: {}", "x: {}", "url: https://u:{}@x/y")
_IN_LOG = (
    "RuntimeError: 401 for token {}",
    "Authorization: Bearer {}",
    "fatal: https://u:{}@x/y not found",
    "machine x login y password {}",
)


def planted(random: Random, files: Files) -> tuple[Files, str]:
    """The files with a line more in one of them, and the token in it; none where no file is a text."""
    start, length = random.choice(_SHAPES)
    letters = _LETTERS.upper() if start == "AKIA" else _LETTERS
    token = start + "".join(random.choices(letters, k=length))
    found = [at for at, (name, _) in enumerate(files) if _lines_for(name)]
    if not found:
        return files, ""
    at = random.choice(found)
    name, data = files[at]
    line = random.choice(_lines_for(name)).format(token).encode()
    parts = data.split(b"\n")
    parts.insert(random.randrange(len(parts) + 1), line)
    return [*files[:at], (name, b"\n".join(parts)), *files[at + 1 :]], token


def _lines_for(name: str) -> tuple[str, ...]:
    kinds = {
        ".sh": _IN_SHELL,
        ".sbatch": _IN_SHELL,
        ".yaml": _IN_YAML,
        ".yml": _IN_YAML,
        ".log": _IN_LOG,
        ".out": _IN_LOG,
    }
    return kinds.get(os.path.splitext(name)[1], ())
