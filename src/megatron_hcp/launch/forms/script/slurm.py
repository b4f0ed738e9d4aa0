"""What a script gets from Slurm: the options in its header, and the variables that they set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import Field, Hole, Items, Lit, ScriptText, Span, Value
from megatron_hcp.launch.forms.script.options import Option, gpu_count, slurm_options
from megatron_hcp.launch.forms.script.started import Handed, StartContext

_SAME = {
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS_PER_NODE": "ntasks_per_node",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_GPUS_PER_NODE": "gpus_per_node",
    "SLURM_CPUS_PER_TASK": "cpus_per_task",
    "SLURM_GPUS_PER_TASK": "gpus_per_task",
    "SLURM_GPUS": "gpus",
    "SLURM_JOB_NAME": "job_name",
    "SLURM_JOB_PARTITION": "partition",
}
"""Variables that Slurm sets to the value of an #SBATCH option."""
_OF_THE_JOB = frozenset("SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_USER SLURM_SUBMIT_DIR".split())
"""Variables that always have a value, the same throughout the job."""
_BY_TASK = re.compile(r"SLURM_(?!JOB_|ARRAY_|SUBMIT_)|\w*(?:TMP|LOCAL)")
_WORD = re.compile(rb"""(?:"[^"]*"|'[^']*'|<[^<>#]*>|\\.|[^\s"'\\#])+|(?P<comment>#)""")


def differs_by_task(name: str) -> bool:
    """Whether a name is of a variable that Slurm sets anew for a step, or of a node's disk or a local rank."""
    return _BY_TASK.match(name) is not None


def slurm_variable(name: str, options: Mapping[str, Option], span: Span) -> Value | None:
    """The value of a variable that Slurm (or mpirun) sets, placed at `span`; None for all others.

    `options` are those of the launch by their full names, such as `sbatch.nodes`.
    """
    if name.startswith(("OMPI_", "PMI_", "PMIX_")):
        return (Hole(f"{name} is set by MPI in each rank", span),)
    if not name.startswith("SLURM_"):
        return None
    text = _known(options, _SAME.get(name, ""))
    if text is not None:
        return (Lit(text, span, False),)
    gpus = gpu_count(_known(options, "gpus_per_node")) or gpu_count(_known(options, "gres"))
    if name == "SLURM_GPUS_ON_NODE" and gpus is not None:
        return (Lit(str(gpus), span, False),)
    nodes, tasks = _known(options, "nodes") or "", _known(options, "ntasks_per_node") or ""
    is_product = nodes.isdecimal() and tasks.isdecimal() and len(nodes) + len(tasks) < 12
    if name in ("SLURM_NTASKS", "SLURM_NPROCS") and is_product:
        return (Lit(str(int(nodes) * int(tasks)), span, False),)
    return (Hole(f"{name} is set by Slurm when the job runs", span, variable=name if name in _OF_THE_JOB else ""),)


def _known(options: Mapping[str, Option], name: str) -> str | None:
    option = options.get(f"sbatch.{name}")
    plain = option.plain if option is not None else None
    return plain if isinstance(plain, str) else None


def late_directives(script: Script) -> int:
    """How many #SBATCH lines come after the first command, where sbatch doesn't read them."""
    first = script.statements[0].start if script.statements else len(script.text.data)
    return sum(start > first and script.text.data.startswith(b"#SBATCH", start) for start, _ in script.comments)


def sbatch_header(text: ScriptText) -> list[Option]:
    """The #SBATCH options at the top of a script.

    sbatch stops reading at the first line that is neither empty nor a comment.
    """
    found: list[Option] = []
    offset = 0
    for line in text.data.split(b"\n"):
        stripped = line.strip()
        if line.startswith(b"#SBATCH"):
            found += _directive_options(_directive_words(text, line, offset))
        elif stripped and not stripped.startswith(b"#"):
            break
        offset += len(line) + 1
    return found


def _directive_options(words: list[Field]) -> list[Option]:
    """The options of one #SBATCH line, without what stands for options that the user is to fill in: `<OPTIONS>`."""
    options = slurm_options(words, 0, "sbatch")
    found = [*options.found]
    while options.rest < len(words) and (words[options.rest].text or "").startswith("<"):
        options = slurm_options(words, options.rest + 1, "sbatch")
        found += options.found
    return found


def _directive_words(text: ScriptText, line: bytes, offset: int) -> list[Field]:
    """The words of one #SBATCH line: quotes and backslashes as sbatch reads them, `#` starts a comment.

    What the user is to fill in is one word, or part of one: `<SLURM OPTIONS>`.
    """
    words: list[Field] = []
    for match in _WORD.finditer(line, line.index(b"#SBATCH") + len(b"#SBATCH")):
        if match["comment"]:
            break
        word = re.sub(rb"\\(.)|[\"']", rb"\1", match[0]).decode("utf-8", "replace")
        span = (text, offset + match.start(), offset + match.end())
        words.append(Field((Lit(word, span, False),), span))
    return words


def sbatch(items: Items, place: int, context: StartContext) -> Handed | None:
    """What `sbatch OPTIONS SCRIPT ARGUMENTS`, or its --wrap, starts; `place` is that of the first option."""
    options = slurm_options(items, place, "sbatch")
    wrap = next((option.value for option in options.found if option.name == "wrap"), None)
    context = context.with_options("sbatch", tuple(o for o in options.found if o.name != "wrap"), options.unseen)
    if wrap is not None:
        return Handed(context, wrap, is_job=True)
    script = items[options.rest] if options.rest < len(items) else None
    path = script.parts if isinstance(script, Field) else None
    return Handed(context, path=path, is_job=True, arguments=items[options.rest + 1 :])
