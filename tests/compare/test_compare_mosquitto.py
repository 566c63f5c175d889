"""Random MQTT sessions bring the same with penstock and with Debian's Mosquitto, in 3.1.1 and 5.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compare.mosquitto import compare

PROGRAMS = 30  # `make compare-mosquitto` runs others for 5 minutes

pytestmark = pytest.mark.penstock_only("penstock beside Mosquitto")


def test_random_sessions_bring_the_same_as_with_mosquitto(tmp_path: Path) -> None:
    count, found = compare(tmp_path, 1, programs=PROGRAMS)
    assert count == PROGRAMS and not found, "\n\n".join(found)
