"""The logs of a running job are looked at until they show its end, and show it still a while later."""

from megatron_hcp.triage.inputs.follow import SETTLED_S, follow


class _Job:
    """A job whose logs say one thing after the other: (seconds, what ended it), on a clock of its own."""

    def __init__(self, *said):
        self.said, self.clock, self.looks = said, 0.0, 0

    def _now(self):
        return self.clock

    def _sleep(self, seconds):
        self.clock += seconds

    def _said(self):
        return [end for at, end in self.said if at <= self.clock]

    def _look(self):
        self.looks += 1
        return self._said()[-1]

    def follow(self):
        return follow(self._look, lambda: len(self._said()), lambda end: end, self._now, self._sleep)


def test_the_first_failure_ends_it_once_it_has_lasted():
    job = _Job((0, None), (30, "a.log:7"))
    assert job.follow() == "a.log:7"
    assert 30 + SETTLED_S <= job.clock < 30 + SETTLED_S + 5


def test_logs_are_read_again_only_when_they_changed():
    job = _Job((0, None), (100, "a.log:7"))
    job.follow()
    assert job.looks == 2


def test_a_failure_that_the_training_survives_does_not_end_it():
    job = _Job((0, None), (30, "a.log:7"), (36, None), (300, "completed"))
    assert job.follow() == "completed"
    assert job.clock >= 300 + SETTLED_S


def test_an_earlier_failure_that_shows_up_later_starts_the_wait_again():
    job = _Job((0, "b.log:9"), (8, "a.log:7"))
    assert job.follow() == "a.log:7"
    assert job.clock >= 8 + SETTLED_S
