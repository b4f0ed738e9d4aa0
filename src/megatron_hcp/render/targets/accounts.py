"""The account of every word of a launch: what it became in the job on its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Launch
from megatron_hcp.render.from_launch import Stated
from megatron_hcp.render.job import Job
from megatron_hcp.render.site import BY_NAME, Settled
from megatron_hcp.render.targets.table import Target, fate_of
from megatron_hcp.render.values import shortened
from megatron_hcp.render.words import TakenWord


def accounts_of(target: Target, job: Job, launch: Launch, stated: Stated, settled: Settled) -> tuple[TakenWord, ...]:
    """What became of each word around the training, of each option and site key, and of each word of the training."""
    around = (_settled(word, target, job, settled) for word in stated.words)
    return (*around, *_options(target, stated, settled), *_training(job, launch))


def _settled(word: TakenWord, target: Target, job: Job, settled: Settled) -> TakenWord:
    """A word of the launch, after the target and what overrules it had their say."""
    if not word.key:
        return word
    own = f"env.{word.text.removeprefix('export ')}" if word.key == "env" else word.key
    origin = settled.origins.get(own)
    if origin != word.where:
        return word._replace(fate="rewritten", became=f"{origin} overrides it", key="")
    fate = fate_of(word.key, target)
    if target.is_slurm_script and word.key == "signal" and job.site["signal"] != settled.values["signal"]:
        return word._replace(fate="rewritten", became=f"{job.site['signal']}, for a job as short as this")
    return word._replace(fate=fate.fate, became=fate.text)


def _options(target: Target, stated: Stated, settled: Settled) -> Iterator[TakenWord]:
    """The options and site keys that the target does not have as they are."""
    for name, origin in settled.origins.items():
        if name in BY_NAME and origin != stated.origins.get(name):
            fate = fate_of(name, target)
            if fate.fate in ("left out", "rewritten"):
                yield TakenWord(f"{name}={visible(str(settled.values[name]))[:200]}", origin, fate.fate, fate.text)


def _training(job: Job, launch: Launch) -> Iterator[TakenWord]:
    where = visible(launch.reading.target.rpartition("/")[2])
    for name, command in job.own.outputs.items():
        became = f"${name}, which the job's script sets as it starts"
        yield TakenWord(shortened(command.removesuffix(" || true")), where, "rewritten", became)
    for name in job.own.untold:
        yield TakenWord(
            name, where, "left out", "a file that the job takes in finds it unset; export it if it is read there"
        )
    for words in (job.program, *job.launch_lines):
        if words:
            yield TakenWord(shortened(" ".join(map(str, words))), where, "carried", "the training, word for word")


def table_of(accounts: Sequence[TakenWord]) -> str:
    """The accounts as lines of aligned columns: what became of a word, the word, where it is, and what it is now."""
    width = max((len(visible(word.text)) for word in accounts), default=0)
    place = max((len(word.where) for word in accounts), default=0)
    rows = (f"{word.fate:9}  {visible(word.text):{width}}  {word.where:{place}}  {word.became}" for word in accounts)
    return "".join(f"{row.rstrip()}\n" for row in rows)
