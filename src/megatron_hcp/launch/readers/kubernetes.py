"""The launches in a file of Kubernetes objects: pods, jobs, and those of Kubeflow and Ray."""

from __future__ import annotations

from megatron_hcp.bash.value import ScriptText
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.launch.dialects.foreign import WANTED
from megatron_hcp.launch.fact import Beside, Dialect, Reading
from megatron_hcp.launch.forms.kubernetes.start import starts
from megatron_hcp.launch.forms.kubernetes.texts import Texts
from megatron_hcp.launch.forms.script.flags import location_of
from megatron_hcp.launch.forms.script.follow import Followed
from megatron_hcp.launch.readers.script import reading_of, trainings
from megatron_hcp.launch.readers.several import judged, several
from megatron_hcp.launch.readers.unreadable import refused


def read_kubernetes(text: str, target: str, forced: Dialect | None, beside: Beside) -> tuple[Reading, ...]:
    """The launches that the containers of a file start.

    Raises:
        HcpError: not YAML, or no container that starts a training program.
    """
    texts = Texts(ScriptText(text.encode("utf-8", "replace"), target))
    try:
        containers = list(starts(texts))
    except HcpError as error:
        raise refused(error, text, target) from None
    beside = beside._replace(folder=None)  # the file's folder isn't one of the container's
    found, notes, refusal = [], [], None
    for workload, start in containers:
        script = Followed(texts.script, beside, start)
        try:
            trained = judged(trainings(script, text, target, forced))
        except HcpError as error:
            refusal = refusal or error
            continue
        found += [(script, one) for one in trained]
        notes += [f"{workload.kind} {workload.name}".strip()] * len(trained)
    if not found:
        raise refusal or UnrecognisedError(
            f"{target} has a Kubernetes object, but no container with a command",
            wanted=WANTED,
            do="give the file that starts the training",
        )
    readings = [reading_of(script, one, text, target, [note]) for (script, one), note in zip(found, notes, strict=True)]
    if len(readings) == 1:
        return (readings[0],)
    kept = several(readings, [location_of(one.launched.started.span) for _, one in found])
    if len(kept) == 1:
        return (readings[0],)  # all pods of a job start the same command
    return tuple(reading._replace(ordinal=place) for place, reading in enumerate(kept))
