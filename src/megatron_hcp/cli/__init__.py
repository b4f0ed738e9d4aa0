"""The click commands: they parse, call and print. No arithmetic and no rules here."""

import gc

gc.set_threshold(100_000)  # most collections are skipped while modules load: the process runs for only 0.1 s
