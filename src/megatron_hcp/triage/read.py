"""Reads the logs of a job: its first failure if it died, and whether context parallelism is active if it runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.triage.collective.flight_recorder import read_dumps
from megatron_hcp.triage.conclude import Diagnosis, conclude
from megatron_hcp.triage.course.marks import DELETED, Kinds
from megatron_hcp.triage.cp.evidence import SPEED_TOKENS
from megatron_hcp.triage.inputs.compressed import Unreadable
from megatron_hcp.triage.inputs.lead import without_lead
from megatron_hcp.triage.inputs.log_name import restarts_of
from megatron_hcp.triage.inputs.sources import is_log, opened
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.line import read_line
from megatron_hcp.triage.line_reader import LineReader
from megatron_hcp.triage.ranks.last_words import keep_last_words
from megatron_hcp.triage.ranks.left_early import keep_last_line
from megatron_hcp.triage.ranks.place import stated_nodes
from megatron_hcp.triage.scan import CHUNK, Bytes, scan
from megatron_hcp.triage.signatures.progress import is_of_a_training, shows_start
from megatron_hcp.triage.signatures.table import SIGNATURES, compiled


def triage(
    paths: Sequence[Path],
    plan: CpPlan,
    advanced: Callable[[int], None] = lambda count: None,
    dumps: Sequence[Path] = (),
) -> Diagnosis:
    """What the logs of one job show: its first failure, and whether context parallelism is on.

    Each log is read once, in constant memory.

    Args:
        paths: log files of one job; `STDIN` is standard input.
        plan: what the launch plans, as far as it is known.
        advanced: called with the number of bytes of every chunk read.
        dumps: files of torch's flight recorder, one of each rank.

    Raises:
        HcpError: no file begins like a log or can be read, and there is no dump; or standard input is closed.
        PermissionError: a file may not be read.
    """
    rows = compiled(SIGNATURES)
    reader = LineReader(rows)
    kinds = Kinds((*reader.words, *SPEED_TOKENS))
    binary, size, has_text, is_of_training = [], 0, False, False
    gone: list[tuple[Path, str]] = []
    restarts = restarts_of(map(str, paths))
    block = memoryview(bytearray(CHUNK))
    read_paths, starts = list[Path](), dict[int, bool]()

    def read(count: int) -> None:
        nonlocal size
        size += count
        advanced(count)

    for path in paths:
        with ExitStack() as opening:
            try:
                file, start = opening.enter_context(opened(path))
            except PermissionError:
                raise
            except (OSError, Unreadable) as error:  # logs are rotated while a folder is read; a disk fails
                gone.append((path, str(getattr(error, "strerror", None) or error)))
                continue
            if start and not is_log(start):
                binary.append(path)
                continue
            has_text = has_text or bool(start)
            alike = hash(start.translate(None, DELETED))  # as ranks begin that differ in figures alone
            if alike not in starts:
                starts[alike] = shows_start(start)
            reader.job.stated |= stated_nodes(start)
            reader.history.begin_log(path, starts[alike], restarts.get(str(path)))
            if reader.entry.attempt is not None:
                times = (read_line(raw).when for raw in start[:4096].splitlines())
                reader.entry.began = next(filter(None, times), None)
            plain, begun = without_lead(file, start)
            stopped = _Until(plain, block)
            for hit in scan(stopped, reader.words, SPEED_TOKENS, read, begun, kinds):
                reader.history.follow(hit)
                reader.entry.progress(reader.history.steps_of(hit), hit.finite)
                reader.entry.runs = reader.entry.runs or hit.runs
                if hit.line:
                    reader.read(hit, len(read_paths))
                    keep_last_words(reader.entry, hit, len(read_paths))
                else:  # the end of a chunk
                    is_of_training = is_of_training or is_of_a_training(hit.chunk)
                    if hit.is_last:
                        reader.close(hit, len(read_paths))
                        keep_last_words(reader.entry, hit, len(read_paths))
                        keep_last_line(reader.entry, hit, len(read_paths))
                del hit  # with its chunk, whose memory the next one takes
            read_paths.append(path)
            gone += [(path, why) for why in stopped.why]
    if not has_text and not dumps and gone:
        raise HcpError(f"{visible(str(gone[0][0]))}: {gone[0][1]}", wanted="readable files")
    if not has_text and not dumps:
        names = ", ".join(visible(str(path)) for path in paths[:8])
        raise HcpError(
            f"found no text in {names}",
            wanted="the job's logs",
            do="a job that wrote nothing may have had no folder for its output (SLURM011)",
        )
    waited, unread = read_dumps(dumps)
    diagnosis = conclude(reader, plan, waited, dumps[0] if dumps else None)
    return replace(
        diagnosis,
        files=tuple(read_paths),
        binary=tuple(binary),
        bytes=size,
        dumps=tuple(dumps),
        unread=(*gone, *unread),
        plan=plan,
        is_of_training=is_of_training,
    )


class _Until:
    """A log up to where it cannot be read any further; `why` says so.

    Files are read into the same memory, block by block: new memory for each takes longer than to read it.
    """

    def __init__(self, file: Bytes, block: memoryview) -> None:
        self.file, self.block = file, block
        self.why: list[str] = []

    def read(self, size: int, /) -> bytes | memoryview | None:
        """The next bytes; none at the end of the file."""
        if self.why:
            return None
        try:
            if isinstance(self.file, io.FileIO | io.BufferedReader):
                return self.block[: self.file.readinto(self.block[:size]) or 0]
            return self.file.read(size)
        except (OSError, Unreadable) as error:
            self.why.append(f"not read to its end: {getattr(error, 'strerror', None) or error}")
            return None
