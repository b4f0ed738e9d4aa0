"""Logs of jobs, as files."""

STEP = (
    "[2026-08-22 10:00:{s:02}] iteration {s}/ 100 | elapsed time per iteration (ms): 5.0 | "
    "throughput per GPU (TFLOP/s/GPU): {speed} |\n"
)


def write_logs(tmp_path, **files):
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", "-").replace("_log", ".log")
        path.write_text(text)
        paths.append(path)
    return paths
