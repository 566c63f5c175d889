"""Where brokers differ and the standard decides, or leaves the choice: penstock and Mosquitto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker, Gateway, Mosquitto
from tests.support.mqtt_wire import Gate, Wire, props

pytestmark = pytest.mark.penstock_only("penstock beside Mosquitto")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    folder = tmp_path_factory.mktemp("choices")
    with Gateway(folder / "penstock") as gateway, Mosquitto(folder / "mosquitto") as mosquitto:
        yield {"penstock": gateway, "mosquitto": mosquitto}


@pytest.fixture(params=["penstock", "mosquitto"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def five(brokers: dict[str, Broker], name: str) -> Iterator[Gate]:
    gate = Gate(brokers[name].mqtt_port, 5)
    yield gate
    gate.close()


def before_mark(watcher: Wire, pub: Wire, unique: str) -> list[bytes]:
    """Payloads that came before a mark that is published now."""
    pub.published(f"{unique}/mark", b"mark", qos=1)
    found = [watcher.message().payload]
    while found[-1] != b"mark":
        found.append(watcher.message().payload)
    return found[:-1]


def test_a_clean_start_ends_the_session_and_publishes_its_delayed_will(
    five: Gate, name: str, unique: str
) -> None:
    """mqtt5:3.1.3.2.2: when the session ends, if that is before the delay has passed; not so in Mosquitto."""
    watcher = five.subscriber(f"{unique}/#")
    will = {"will": (f"{unique}/w", b"gone", 0, False), "will_props": props(will_delay=600)}
    one = five.connect(f"{unique}-c", clean=False, props=props(session_expiry=900), **will)
    one.disconnect(0x04)
    five.connect(f"{unique}-c", clean=True)
    assert before_mark(watcher, five.connect(), unique) == ([b"gone"] if name == "penstock" else [])


@pytest.mark.parametrize("version", [4, 5])
def test_a_take_over_publishes_the_will(five: Gate, unique: str, version: int) -> None:
    """mqtt311:3.1.2.5, mqtt5:3.1.2-8: the first connection ended without DISCONNECT."""
    watcher = five.subscriber(f"{unique}/#")
    five.connect(f"{unique}-c", version=version, will=(f"{unique}/w", b"gone", 0, False))
    five.connect(f"{unique}-c", version=version)
    assert before_mark(watcher, five.connect(), unique) == [b"gone"]


@pytest.mark.parametrize("version", [4, 5])
def test_when_a_message_of_qos_2_is_handed_on(five: Gate, name: str, unique: str, version: int) -> None:
    """The standard allows both (mqtt5:4.3.3, figure 4.3): penstock at PUBLISH, Mosquitto at PUBREL."""
    watcher = five.subscriber(f"{unique}/#")
    pub = five.connect(version=version)
    pub.publish(f"{unique}/t", b"two", qos=2, packet_id=5).answer(f.PUBREC)
    handed_on = [b"two"] if name == "penstock" else []
    assert before_mark(watcher, five.connect(), unique) == handed_on
    pub.pubrel(5).answer(f.PUBCOMP)
    assert before_mark(watcher, five.connect(), unique) == ([] if handed_on else [b"two"])
