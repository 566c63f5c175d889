"""One gateway for all conformance tests of a run, with names of each test's own on it.

Where the specification leaves a choice the tests want the gateway's own, to the byte; other brokers, which
may choose otherwise, are not run against them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers import Broker
from tests.support.mqtt_wire import Gate


@pytest.fixture(autouse=True)
def only_the_gateway(broker_name: str) -> None:
    """See the module's text."""
    if broker_name != "penstock":
        pytest.skip("what the gateway answers, to the byte")


@pytest.fixture
def gate(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Gate]:
    """Connections in the version that the folder is about."""
    gate = Gate(broker.mqtt_port, 5 if "mqtt5" in request.path.parts else 4)
    yield gate
    gate.close()
