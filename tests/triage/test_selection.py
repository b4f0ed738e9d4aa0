"""How much work it is to say which events a job did not survive."""

import io

from megatron_hcp.triage.line_reader import LineReader
from megatron_hcp.triage.scan import scan
from megatron_hcp.triage.selection import candidates_of
from megatron_hcp.triage.signatures.table import SIGNATURES, compiled

WORKER = "worker-" + "ab" * 28 + "-01000000-{pid}.err"
RESET = "ready\nConnectionResetError: [Errno 104] Connection reset by peer\n"


class _Files(list):
    """Counts how often all files of a job are gone through."""

    rounds = 0

    def __iter__(self):
        self.rounds += 1
        return super().__iter__()


def test_all_files_of_a_job_are_gone_through_as_often_however_many_there_are(tmp_path):
    """Ray keeps two files of each worker."""
    rounds = []
    for count in (2, 30):
        for pid in range(count):
            (tmp_path / WORKER.format(pid=pid)).write_text(RESET)
        reader = LineReader(compiled(SIGNATURES))
        for place, path in enumerate(sorted(tmp_path.iterdir())):
            reader.history.begin_log(path, begins=True)
            for hit in scan(io.BytesIO(path.read_bytes()), reader.words, ()):
                if hit.line:
                    reader.read(hit, place)
        files = _Files(reader.history.files)
        assert len(candidates_of(list(files), files)) == count
        rounds.append(files.rounds)
    assert rounds[0] == rounds[1]
