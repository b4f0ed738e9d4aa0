"""Cases of a repository and what works in it: `.hcp.yaml`, the baseline, fixes, `hcp init`, an editor, a job's spec."""

from __future__ import annotations

import io
import json
import os
import sys
from random import Random
from typing import Any

from fuzzer.case import OUTPUT
from fuzzer.launches import GOOD, Made, asked, pick
from fuzzer.seeds import Seeds
from fuzzer.shell import script
from fuzzer.text import damaged, encoded, monster, value
from fuzzer.yaml_texts import document, json_text, json_value

_CONFIG_KEYS = (
    "facts",
    "image",
    "site",
    "model",
    "dialect",
    "sources",
    "select",
    "ignore",
    "accept",
    "exclude",
    "paths",
)
_CONFIG = (
    b"facts: {te: 2.14, world_size: 64}\nselect: [HCP, CP]\naccept:\n- {rule: CP001, reason: x, paths: ['*.sh']}\n"
)
_ENTRY_KEYS = ("schema", "findings", "path", "rule", "guard", "keys", "found")
_SPEC = {"schema": "hcp.job/1", "start": "srun", "nodes": 2, "gpus_per_node": 8, "check": ["--assume", "te=2.14"]}
_SPEC_KEYS = (
    *("schema", "start", "nodes", "gpus_per_node", "gpus_to_see", "check", "check_skip", "ranks", "communication"),
    *("shared", "free_gib", "requeue", "stall_s", "x"),
)


def repository(random: Random, seeds: Seeds) -> Made:
    """A launch in a repository with settings and a baseline; fixes are written into it."""
    launch = f"{OUTPUT}.sh"
    text = GOOD if random.random() < 0.4 else encoded(random, script(random))
    config = _CONFIG if random.random() < 0.5 else encoded(random, document(random, _CONFIG_KEYS))
    config = damaged(random, config, [pick(random, seeds, "yaml")]) if random.random() < 0.5 else config
    base: Any = {
        "schema": "hcp.baseline/1",
        "findings": [{"path": launch, "rule": "CP001", "guard": "", "keys": [], "found": "x"}],
    }
    baseline = json.dumps(base).encode() if random.random() < 0.3 else encoded(random, json_text(random, _ENTRY_KEYS))
    named = [f"image: {monster(random)}", f"site: {monster(random)}", f"model: {monster(random)}", ""]
    config += f"\n{random.choice(named)}\n".encode("utf-8", "replace")
    files = [(".git/HEAD", b"ref: refs/heads/main\n"), (launch, text), ("requirements.txt", b"torch==2.8\n")]
    files += [(random.choice((".hcp.yaml", ".hcp.yaml", "pyproject.toml")), config)]
    files += [(".hcp-baseline.json", baseline)] if random.random() < 0.6 else []
    words = random.choice(
        (
            [*asked(random), launch],
            ["check", "--fix", launch],
            ["check", "--write-baseline", launch],
            ["init", "--print"],
            ["init"],
        )
    )
    if words[0] == "init":  # it looks through the whole folder, where nothing may be that no word names
        folder = f"{OUTPUT}-repository"
        words, files = [*words, folder], [(f"{folder}/{name}", data) for name, data in files]
    return words, files, b""


def editor(random: Random, seeds: Seeds) -> Made:
    """A document that an editor has open: `edited` reads it as `hcp lsp` does."""
    name = random.choice(("run.sh", "job.sbatch", "run.yaml", ".hcp.yaml"))
    kind = "shell" if name.endswith(("sh", "sbatch")) else "yaml"
    text = encoded(random, script(random) if kind == "shell" else document(random, _CONFIG_KEYS))
    if random.random() < 0.5:
        text = damaged(random, pick(random, seeds, kind), [pick(random, seeds, "shell", "yaml")])
    return [name], [("beside.sh", b"export CP=2\n"), (name, b"")], text


def spec(random: Random, seeds: Seeds) -> Made:
    """A job's spec, as `hcp job run` reads it before it starts anything."""
    data = dict(_SPEC)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        data[random.choice(_SPEC_KEYS)] = json_value(random, _SPEC_KEYS, 3) if random.random() < 0.5 else value(random)
    text = (
        encoded(random, json.dumps(data)) if random.random() < 0.8 else encoded(random, json_text(random, _SPEC_KEYS))
    )
    return ["job.json"], [("job.json", damaged(random, text, []) if random.random() < 0.3 else text)], b""


def edited(words: list[str]) -> None:
    """Judges the document, and asks for explanations, fixes and keys at its findings and at a few places."""
    from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
    from megatron_hcp.lsp.judged import dialect_in, explained, fixed_text, judged, titles_of_fixes, with_fixes
    from megatron_hcp.lsp.keys import offered

    text = io.TextIOWrapper(sys.stdin.buffer, "utf-8", "replace", newline="").read()
    path = os.path.abspath(words[0])
    found = judged(text, path)
    lines = text.splitlines()
    dialect = dialect_in(found.reports) or (next(iter(FRAMEWORKS)), "")
    said: list[Any] = []
    tried = with_fixes(found)
    for mark in found.marks[:5]:
        said += [mark.text, explained(found, path, mark.place.line, mark.place.column)]
        said += titles_of_fixes(tried, mark.code, mark.place)
        if (after := fixed_text(tried, mark.code, mark.place, 0)) is not None:
            judged(after, path)
    for number in range(0, len(lines), max(1, len(lines) // 5)):
        offers = offered(lines, number, len(lines[number]), *dialect, not path.endswith("sh"))
        said += [offer.label for offer in offers[:3]]
    print("\n".join(line for each in said for line in str(each).splitlines()))
    sys.exit(0)


def specified(words: list[str]) -> None:
    """Reads the spec."""
    from megatron_hcp.cli.reports.json import dump
    from megatron_hcp.ground.errors import HcpError, error_json
    from megatron_hcp.job.spec import read_spec, spec_json

    try:
        print(json.dumps(spec_json(read_spec(words[0])))[:1000])
    except HcpError as error:
        print(dump(error_json(error)))
    sys.exit(0)
