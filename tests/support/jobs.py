"""A rendered job of the stand-in trainer, and what it leaves on disk."""

import json
import os
import re
import sys

LAUNCH = [
    "--context-parallel-size",
    "4",
    "--cp-comm-type",
    "a2a+p2p",
    "--hierarchical-context-parallel-sizes",
    "2",
    "2",
    "--exit-signal-handler",
]


class Job:
    """A rendered script in a folder of its own, submitted at most once."""

    def __init__(self, slurm, hcp, root, folder):
        self.slurm, self.hcp, self.folder = slurm, hcp, folder
        self.program = root / "checks" / "train_standin.py"
        (folder / "logs").mkdir()
        self.checkpoints = folder / "checkpoints"
        self.script = folder / "job.sbatch"

    def render(self, start="srun", *options, **sizes):
        done = self.try_render(start, *options, **sizes)
        assert done.returncode in (0, 1) and self.script.exists(), done.stderr
        return done

    def try_render(self, start="srun", *options, launch=LAUNCH, iters=6, trainer=(), nodes=2, ranks=2):
        words = [
            *launch,
            "--train-iters",
            iters,
            "--save-interval",
            "2",
            "--eval-interval",
            "1000",
            "--save",
            "checkpoints",
            "--load",
            "checkpoints",
            *trainer,
        ]
        return self.hcp(
            "render",
            "--start",
            start,
            "--nodes",
            nodes,
            "--gpus-per-node",
            ranks,
            "--time",
            "10",
            "--signal",
            "60",
            "--arch",
            "sm90",
            "--gpu-request",
            "none",
            "--logs",
            "logs",
            "--python",
            sys.executable,
            "--job-name",
            "job",
            "--program",
            self.program,
            "-o",
            self.script,
            *options,
            "--",
            *words,
            cwd=self.folder,
            env=self.slurm.env,
        )

    def hurry_the_watchdog(self, seconds):
        """Makes the watchdog of --stall 1 wait so few seconds for the next step."""
        self.replace('"stall_s": 60', f'"stall_s": {seconds}')

    def replace(self, old, new):
        """Changes the script in one place, as a user may."""
        text = self.script.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {self.script}"
        self.script.write_text(text.replace(old, new))

    def submit(self, *options, env=None):
        self.id = self.slurm.submit(self.script, *options, cwd=self.folder, env=env)
        return self.id

    def finish(self):
        return self.slurm.finish(self.id)

    @property
    def run(self):
        return self.folder / "logs" / f"job-{self.id}"

    def verdict(self, attempt=None):
        name = "verdict.json" if attempt is None else f"verdict-r{attempt}.json"
        return json.loads((self.run / name).read_text())

    def final_verdict(self, attempt):
        """Waits for the verdict of an attempt; one that is asked to save leaves a provisional one before."""
        path = self.run / f"verdict-r{attempt}.json"
        self.slurm.wait_until(lambda: path.exists() and self.verdict(attempt)["final"], f"verdict {attempt}")
        return self.verdict(attempt)

    def log(self):
        return (self.folder / "logs" / f"{self.run.name}.out").read_text()

    def train_logs(self):
        return "".join(path.read_text() for path in sorted(self.run.glob("train-*.log")))

    def wait_for_steps(self, steps):
        self.slurm.wait_until(
            lambda: self.run.exists() and len(re.findall("elapsed time", self.train_logs())) >= steps,
            f"{steps} training steps",
        )

    def final_sum(self):
        last = (self.checkpoints / "latest_checkpointed_iteration.txt").read_text()
        return json.loads((self.checkpoints / f"iter_{int(last):07d}.json").read_text())

    def triage(self):
        done = self.hcp("triage", "--format", "json", self.folder / "logs")
        return json.loads(done.stdout)


def total_after(steps, world):
    return {"step": steps, "sum": sum(range(1, steps + 1)) * sum(range(world))}


class Programs:
    """Stand-ins for launchers that are not installed here; `env` puts them on the PATH of a job."""

    def __init__(self, folder, path):
        folder.mkdir()
        self.folder = folder
        self.env = {"PATH": f"{folder}{os.pathsep}{path}"}

    def add(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)
