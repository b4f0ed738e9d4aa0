"""Executable knowledge about context parallelism on the Megatron stack."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  (pip refuses such a Python; a checkout on the path does not)
    sys.stderr.write(f"hcp: found Python {sys.version.split()[0]}; wanted 3.10 or newer; run it with a newer python3\n")
    sys.exit(2)

__version__ = "0.2.0.dev0"
