"""The command that drives a launch's workers through Ray, as one text for a shell."""

from __future__ import annotations

from collections.abc import Iterable

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import LAUNCH_FOLDER, LAUNCH_TIME, Argument, RunText
from megatron_hcp.render.job import Job
from megatron_hcp.render.program import GIVE_ARGUMENTS, OF_SCRIPT
from megatron_hcp.render.shell_words import dates_in, quoted


def ray_command(job: Job, python: str) -> str:
    """The launch's folder, its program, and its words; the shell on the head completes what it alone knows.

    Raises:
        HcpError: the words hold arguments of the launch's script, or what it finds where it runs, not on the head.
    """
    if job.arguments:
        raise HcpError(
            "a word of the launch is an argument of its script",
            wanted="a value that is known: this target does not run the script",
            do=GIVE_ARGUMENTS,
        )
    if job.is_of_script:
        raise HcpError(
            OF_SCRIPT,
            wanted="a word that is known: this target does not run the script",
            do="write it out, or use --target slurm",
        )
    folder = job.site["workdir"] or job.site["container_workdir"]
    words: list[Argument] = [python, *job.program, *(word for line in job.launch_lines for word in line)]
    command = in_shell(with_folder(word, job.launch_home) for word in words)
    return f"cd {quoted(folder)} && {command}" if folder else command


def in_shell(words: Iterable[Argument]) -> str:
    """Words as a shell runs them; it takes the time first, if there are dates among them."""
    known = list(words)
    command = " ".join(map(quoted, known))
    return f"{LAUNCH_TIME}=$(date +%s) && {command}" if dates_in(known) else command


def with_folder(word: Argument, home: str) -> Argument:
    """A word in which the launch's own folder is written out."""
    if not isinstance(word, RunText) or LAUNCH_FOLDER not in word.parts:
        return word
    named = zip(word.parts, word.names, strict=True)
    pairs = [(home, False) if pair == (LAUNCH_FOLDER, True) else pair for pair in named]
    return RunText(tuple(part for part, _ in pairs), tuple(name for _, name in pairs))
