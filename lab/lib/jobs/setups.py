"""What a job of lab/jobs/faults.py is like before it starts; each by the name that faults.txt gives it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from support.jobs import LAUNCH, Job
from support.needs import LAUNCHERS

CODE = """import os, sys, time
if os.environ["RANK"] == "3":
    print("Rank 3, node h, device 1, iteration #7: {said}", flush=True)
    sys.exit({code})
time.sleep(600)
"""
APPTAINER = """#!/bin/bash
# A stand-in for `apptainer exec`: a mount namespace with the folders that --bind names.
if [[ ${IN_NAMESPACE-} != 1 ]]; then
    IN_NAMESPACE=1 exec unshare -m "$0" "$@"
fi
shift # exec
while [[ $1 == --* ]]; do
    case $1 in
        --bind)
            from=${2%%:*} to=${2#*:}
            how=${to#*:} to=${to%%:*}
            if [[ ! -d $from ]]; then
                echo "FATAL:   container creation failed: mount $from->$to error: no such file or directory" >&2
                exit 255
            fi
            [[ $from == "$to" ]] || { mkdir -p "$to" && mount --bind "$from" "$to"; }
            [[ $how != ro ]] || mount -o remount,ro,bind "$to"
            shift 2
            ;;
        *) shift ;;
    esac
done
shift # the image
exec "$@"
"""
VERL = """import os, sys, time, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)

@ray.remote(num_gpus=2)
class Worker:
    def step(self):
        return ray.get_runtime_context().get_node_id()

groups = ray.util.placement_group([{{"CPU": 1, "GPU": 2}}] * 2, strategy="STRICT_SPREAD")
ray.get(groups.ready())
options = [dict(placement_group=groups, placement_group_bundle_index=index) for index in (0, 1)]
workers = [Worker.options(**each).remote() for each in options]
for step in range({of}):
    ray.get([worker.step.remote() for worker in workers])
    print(f"Training Progress: {{100 * (step + 1) // 8}}%|##  | {{step + 1}}/8 [00:01<00:02,  1.0s/it]", flush=True)
    {then}
"""


def _edit(job: Job, *pairs: tuple[str, str]) -> None:
    def edit() -> None:
        for old, new in pairs:
            job.replace(old, new)

    job.edits.append(edit)  # type: ignore[attr-defined]


def _variables(job: Job, *lines: str) -> None:
    """As a user's profile would set them."""
    _edit(job, ("set -euo pipefail\n", "set -euo pipefail\n" + "".join(f"export {line}\n" for line in lines)))


def _program(name: str, text: str) -> Callable[[Job], None]:
    def write(job: Job) -> None:
        (job.folder / "bin").mkdir(exist_ok=True)
        path = job.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        _variables(job, f'PATH="{path.parent}:$PATH"')

    return write


def _trainer(text: str) -> Callable[[Job], None]:
    def write(job: Job) -> None:
        job.program = job.folder / "own.py"
        job.program.write_text(text)

    return write


def _on_n2(text: str) -> Callable[[Job], None]:
    """Python runs these lines when it starts on n2."""

    def write(job: Job) -> None:
        (job.folder / "site").mkdir(exist_ok=True)
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        body = f"import os\nif os.environ.get('SLURMD_NODENAME') == 'n2':\n{lines}"
        (job.folder / "site" / "sitecustomize.py").write_text(body)
        _variables(job, f'PYTHONPATH="{job.folder}/site:$PYTHONPATH"')

    return write


def _versions(job: Job) -> None:
    """On n2 Python finds another transformer-engine than on n1."""
    for node, version in (("n1", "2.1.0"), ("n2", "2.2.0")):
        info = job.folder / "site" / node / f"transformer_engine-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: transformer-engine\nVersion: {version}\n")
    (job.folder / "site" / "sitecustomize.py").write_text(
        "import os, sys\nsys.path.append(os.path.dirname(__file__) + '/' + os.environ.get('SLURMD_NODENAME', ''))\n"
    )
    _variables(job, f'PYTHONPATH="{job.folder}/site:$PYTHONPATH"')


def _without_hcp(job: Job) -> None:
    """An interpreter that finds no package of ours."""
    (job.folder / "bare").mkdir()
    interpreter = job.folder / "bare" / "python"
    interpreter.write_text(f'#!/bin/bash\nexec env -u PYTHONPATH {Path(sys.base_prefix)}/bin/python3 -I "$@"\n')
    interpreter.chmod(0o755)
    job.options += ["--python", str(interpreter)]  # type: ignore[attr-defined]


def _checkpoint(job: Job, step: int) -> None:
    job.checkpoints.mkdir()
    (job.checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))


def _claim(job: Job) -> None:
    job.checkpoints.mkdir()
    (job.checkpoints / ".hcp-job.json").write_text(json.dumps({"job": "77"}))


def _health(command: str) -> Callable[[Job], None]:
    def add(job: Job) -> None:
        job.options += ["--health", f"bash -c {shlex.quote(command)}"]  # type: ignore[attr-defined]

    return add


def _hung_health(job: Job) -> None:
    _health("test $SLURMD_NODENAME != n2 || sleep 600")(job)
    _edit(job, ("timeout --kill-after=10 300", "timeout --kill-after=1 6"))


def _container(job: Job, source: str = "kept", how: str = "") -> None:
    """The checkpoints lie in a folder of the host that the container has under another name."""
    _program("apptainer", APPTAINER)(job)
    inside = f"/mnt/hcp-{os.getpid()}/ckpt"
    (job.folder / "kept").mkdir()
    job.checkpoints = job.folder / "kept"
    job.trainer += ["--save", inside, "--load", inside]  # type: ignore[attr-defined]
    repository = Path(__file__).resolve().parents[3]
    mounts = [f"{job.folder / source}:{inside}{how}", f"{repository}:{repository}"]
    runtime = ["--container-runtime", "apptainer", "--container-image", "nemo.sif"]
    job.options += [*runtime, "--mounts", ",".join(mounts)]  # type: ignore[attr-defined]


def _working_folder(job: Job) -> None:
    (job.folder / "sub").mkdir()
    job.checkpoints = job.folder / "sub" / "checkpoints"
    job.options += ["--workdir", "sub"]  # type: ignore[attr-defined]


def _array(elements: str) -> Callable[[Job], None]:
    def add(job: Job) -> None:
        job.options += ["--array-range", elements]  # type: ignore[attr-defined]

    return add


def _two_components(job: Job) -> None:
    words = shlex.join([sys.executable, str(job.program), *LAUNCH])
    job.text = (  # type: ignore[attr-defined]
        "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=2 --time=10\n#SBATCH hetjob\n#SBATCH --nodes=2\n"
        f"srun {words} --micro-batch-size 1\n"
    )


def _two_groups(job: Job) -> None:
    words = shlex.join([sys.executable, str(job.program), *LAUNCH])
    job.text = (  # type: ignore[attr-defined]
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2 --time=10\n"
        f"srun --het-group=0 {words} : --het-group=1 {words}\n"
    )


def _verl(of: int, then: str = "time.sleep(0.2)") -> Callable[[Job], None]:
    def write(job: Job) -> None:
        # The nodes are one machine: Ray takes a name that is free when it looks, so they start one after the other.
        in_turn = (
            "#!/bin/bash\nif [[ $1 == start && $SLURM_NODEID != 0 ]]; then\n"
            '    until compgen -G "$RAY_TMPDIR/ray/session_*/sockets/raylet" >/dev/null; do sleep 0.5; done\nfi\n'
            f'exec {LAUNCHERS / "bin" / "ray"} "$@"\n'
        )
        _program("ray", in_turn)(job)
        _variables(job, "RAY_USAGE_STATS_ENABLED=0", f"RAY_TMPDIR={job.slurm.folder}")
        _trainer(VERL.format(of=of, then=then))(job)

    return write


BEFORE: dict[str, Callable[[Job], None]] = {
    "slow_check": _health("sleep 8"),
    "health_of_n2": _health("test $SLURMD_NODENAME != n2"),
    "health_hangs": _hung_health,
    "once": lambda job: job.trainer.extend(  # type: ignore[attr-defined]
        f"--fail-rank 3 --fail-step 4 --fail-how kill --fail-once {job.folder}/once".split()
    ),
    "short_wait": lambda job: _edit(job, ("--wait=900", "--wait=20")),
    "short_stall": lambda job: _edit(job, ('"stall_s": 60', '"stall_s": 10')),
    "checkpoint": lambda job: _checkpoint(job, 4),
    "all_done": lambda job: _checkpoint(job, 8),
    "dead_claim": _claim,
    "transient_17": _trainer(CODE.format(code=17, said="Possible transient error!!")),
    "training_17": _trainer(CODE.format(code=17, said="Correct result (but possible Application error) (1.0)!")),
    "code_16": _trainer(CODE.format(code=16, said="First rerun: unexpected result is reproducible")),
    "versions": _versions,
    "late_clock": _on_n2("import time\nnow = time.time\ntime.time = lambda: now() - 300"),
    "smi_hangs": _program(
        "nvidia-smi", "#!/bin/bash\n[[ $SLURMD_NODENAME != n2 ]] || sleep 600\n[[ $* != *driver* ]] || echo 570.1\n"
    ),
    "missing_program": lambda job: setattr(job, "program", job.folder / "missing.py"),
    "file_for_folder": lambda job: job.checkpoints.write_text("") and None,
    "without_hcp": _without_hcp,
    "two_components": _two_components,
    "array_of_two": _array("0-1"),
    "chain_of_two": _array("0-1%1"),
    "container": _container,
    "container_without_mount": lambda job: _container(job, "not_there"),
    "container_read_only": lambda job: _container(job, how=":ro"),
    "two_groups": _two_groups,
    "python_hangs": _on_n2("import time\ntime.sleep(900)"),
    "working_folder": _working_folder,
    "verl": _verl(8),
    "slow_verl": _verl(8, "time.sleep(4)"),
    "verl_that_fails": _verl(3, "assert step < 2, 'no reward model'"),
}
