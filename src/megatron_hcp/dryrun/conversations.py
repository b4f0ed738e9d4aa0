"""The data of a launch with --sft, which has no mock: a small file of packed conversations."""

from __future__ import annotations

import json
import os

NAME = "conversations.jsonl"
LINES = 200
_SHARES = (5, 3, 4)
"""Each line has conversations of these parts of a sequence: a fifth, a third and a fourth. The rest is padding."""


def write(folder: str, seq_length: int) -> None:
    """Writes the file. A message's content is its number of tokens; the stand-in for the tokenizer reads it."""
    messages = []
    for share in _SHARES:
        tokens = max(seq_length // share, 3)
        for role, content in (("system", 1), ("user", tokens // 2), ("assistant", tokens - tokens // 2 - 1)):
            messages.append({"role": role, "content": str(content)})
    with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"messages": messages}) + "\n" for _ in range(LINES))
