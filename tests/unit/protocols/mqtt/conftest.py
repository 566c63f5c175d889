"""Fixtures of the tests of MQTT sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from tests.support.mqtt import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway over an empty folder."""
    made = Gateway(tmp_path / "data")
    yield made
    forget_runs()
    made.stop()
