"""The phases of a start add up, and begin with the process."""

from __future__ import annotations

import time

from penstock.gateway.start_times import StartTimes


def test_the_phases_of_a_start_add_up_to_the_time_since_the_process_began() -> None:
    first, second = StartTimes(), StartTimes()
    first.ended("log")
    first.ended("queues")
    fields = first.fields()
    assert list(fields) == ["start_s", "import_s", "log_s", "queues_s"]
    assert abs(fields["start_s"] - sum(list(fields.values())[1:])) < 0.003  # each is rounded
    # The second one began later by the clock that the tests have, too.
    assert 0 < fields["import_s"] <= second.fields()["import_s"] + 0.001
    assert second.fields()["import_s"] < time.clock_gettime(time.CLOCK_BOOTTIME)
