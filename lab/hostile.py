"""How long hcp takes to read texts made to be slow or deep: `python lab hostile [--only NAME]...`.

The texts are those of tests/support/hostile.py. Each is read in a process of its own; imports are not counted, and a
text that can be read in several ways counts as its slowest. For comparison, what a user would otherwise run on the
same text: PyYAML's CSafeLoader for texts, `bash -n` for scripts. Printed are the seconds of both and their ratio.
"crash" means that the process was ended by a signal; the exit status is 1 if hcp crashes or does not end within --limit
seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from program import at_least_one, parser_of

from support.hostile import READ_TEXTS_AS, SCRIPTS, TEXTS

READ = """
import sys, time
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.readers.target import read_text

def read(text):
    try:
        build_launch(read_text(text, sys.argv[2], dialect=sys.argv[3] or None))
    except HcpError:
        pass

read("torchrun pretrain_gpt.py --num-layers 2" if sys.argv[2] == "x.sh" else "model.context_parallel_size=4")
text = open(sys.argv[1], encoding="utf-8").read()
started = time.perf_counter()
read(text)
print(time.perf_counter() - started)
"""
LOAD = """
import sys, time, yaml
text = open(sys.argv[1], encoding="utf-8").read()
started = time.perf_counter()
try:
    yaml.load(text, Loader=yaml.CSafeLoader)
except (yaml.YAMLError, RecursionError, ValueError):
    pass
print(time.perf_counter() - started)
"""
Seconds = float | str
"""Or the reason why the process gave no answer."""


def ended(command: list[str], limit: int) -> subprocess.CompletedProcess[str] | str:
    """The finished process, or why it did not finish properly."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, errors="replace")
    except subprocess.TimeoutExpired:
        return f"> {limit} s"
    return "crash" if done.returncode < 0 else done


def in_python(program: str, limit: int, *arguments: str) -> Seconds:
    """The seconds that a program measures itself."""
    done = ended([sys.executable, "-c", program, *arguments], limit)
    if isinstance(done, str):
        return done
    if done.returncode:
        sys.exit(f"{arguments} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(done.stdout)


def hcp_on_text(file: str, limit: int) -> Seconds:
    return slowest([in_python(READ, limit, file, name, dialect or "") for name, dialect in READ_TEXTS_AS])


def slowest(taken: list[Seconds]) -> Seconds:
    """The longest time; no answer at all is longer."""
    return max(taken, key=lambda seconds: float("inf") if isinstance(seconds, str) else seconds)


def hcp_on_script(file: str, limit: int) -> Seconds:
    return in_python(READ, limit, file, "x.sh", "")


def pyyaml(file: str, limit: int) -> Seconds:
    return in_python(LOAD, limit, file)


def bash(file: str, limit: int) -> Seconds:
    """Wall-clock seconds of `bash -n`, which parses and runs nothing; most hostile scripts are wrong, which is fine."""
    started = time.perf_counter()
    done = ended(["bash", "-n", file], limit)
    return done if isinstance(done, str) else time.perf_counter() - started


Reader = Callable[[str, int], Seconds]


def table(title: str, texts: dict[str, str], hcp: Reader, reference: Reader, limit: int) -> bool:
    """Prints a line for each text; returns whether hcp answered for all."""
    print(f"{'hcp':>9} {title:>20} {'ratio':>9}")
    answered = True
    for name, text in texts.items():
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
            file.write(text)
            file.flush()
            ours, theirs = hcp(file.name, limit), reference(file.name, limit)
        answered &= not isinstance(ours, str)
        ratio = "-" if isinstance(ours, str) or isinstance(theirs, str) else f"{ours / theirs:.2f} x"
        print(f"{shown(ours):>9} {shown(theirs):>20} {ratio:>9}  {name}", flush=True)
    return answered


def shown(seconds: Seconds) -> str:
    return seconds if isinstance(seconds, str) else f"{seconds:.3f} s"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a text's name; may be repeated")
    parser.add_argument("--limit", type=at_least_one, default=120, metavar="SECONDS", help="for each process (120)")
    options = parser.parse_args()
    wanted = options.only or [*TEXTS, *SCRIPTS]
    unknown = {*wanted} - {*TEXTS, *SCRIPTS}
    if unknown:
        parser.error(f"no such text: {', '.join(sorted(unknown))}; there are: {', '.join([*TEXTS, *SCRIPTS])}")
    answered = True
    for title, texts, hcp, reference in (
        ("PyYAML's CSafeLoader", TEXTS, hcp_on_text, pyyaml),
        ("bash -n", SCRIPTS, hcp_on_script, bash),
    ):
        chosen = {name: text for name, text in texts.items() if name in wanted}
        if chosen:
            answered &= table(title, chosen, hcp, reference, options.limit)
    return 0 if answered else 1


if __name__ == "__main__":
    sys.exit(main())
