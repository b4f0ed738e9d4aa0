"""The commands of the Slurm skills that name files run, one after the other, in a folder like a user's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from megatron_hcp.skills.card import find_skill

TRAIN = """\
torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node1:29500 pretrain_gpt.py \
--context-parallel-size 16 --cp-comm-type a2a+p2p \
--hierarchical-context-parallel-sizes 8 2 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
--num-layers 32 --hidden-size 4096 --seq-length 131072 --max-position-embeddings 131072 --micro-batch-size 1 \
--no-create-attention-mask-in-dataloader \
--save /shared/ckpt --save-interval 100 --load /shared/ckpt --exit-signal-handler
"""
LOG = "3: [rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def commands_of(skill: str) -> list[list[str]]:
    """The `hcp` commands that name a file, with those that write one before those that read it."""
    folder = find_skill(skill)
    files = (folder / "SKILL.md", *sorted((folder / "references").glob("*.md")))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files).replace("\\\n", " ")
    found = [
        shlex.split(line.strip(), comments=True)[1:] for line in text.splitlines() if line.strip().startswith("hcp ")
    ]
    named = [words for words in found if any(re.search(r"\.(sbatch|yaml|sh)$", word) for word in words)]
    return sorted(named, key=lambda words: "-o" not in words)


@pytest.mark.slow
@pytest.mark.parametrize("skill", ["slurm-multi-node-launch", "training-resiliency"])
def test_the_commands_with_files_run(skill: str, hcp, tmp_path: Path) -> None:
    launch = (find_skill("slurm-multi-node-launch") / "references/script.md").read_text(encoding="utf-8")
    site = re.search(r"```yaml\n(.*?)```", launch, re.S)
    assert site is not None
    (tmp_path / "site.yaml").write_text(site[1])
    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "logs" / "train-4711").mkdir(parents=True)
    (tmp_path / "logs" / "train-4711" / "train-r0-node0.log").write_text(LOG)
    commands = commands_of(skill)
    assert len(commands) >= 2
    for words in commands:
        done = hcp(*words, cwd=tmp_path)
        assert done.returncode == (1 if words[0] == "triage" else 0), (words, done.stdout, done.stderr)
        if words[0] == "check":
            assert " 0 errors, 0 warnings" in done.stdout, done.stdout
