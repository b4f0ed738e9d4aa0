"""Where `hcp` starts, and `python -m megatron_hcp`, for machines where another tool is already called `hcp`.

`python -m` puts the current folder first on the path, and there a file may be called click.py or json.py: the folder
is taken off before anything is imported. Python itself has no option for that before 3.11 (`python -P`).
"""

import os  # loaded by Python itself, before the current folder was on the path
import sys


def _leave_out_current_folder() -> None:
    try:
        here = os.getcwd()
    except OSError:
        return  # it was removed: nothing can be imported from there
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.realpath(here) != os.path.realpath(ours):  # else hcp itself is read from there, by the user's own choice
        sys.path[:] = [path for path in sys.path if path not in ("", ".", here)]


def _end_quietly() -> None:
    """From here on, Ctrl-C ends the process without a traceback, also while modules are loaded."""
    import _signal  # type: ignore[import-not-found]  # built in: signal.py would be looked for on the path

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if os.path.basename(sys.argv[0]) == "hcp":  # the script of an installer, which may go on to compile a pattern
    _end_quietly()


def start() -> None:
    """Runs the command line."""
    _end_quietly()
    if not os.path.isdir(os.path.dirname(os.path.abspath(__file__))):
        sys.stderr.write("hcp: found its own files in an archive; wanted them in a folder; install it with pip\n")
        sys.exit(2)
    from megatron_hcp.cli.main import main

    main()


if __name__ == "__main__":
    _leave_out_current_folder()
    start()
