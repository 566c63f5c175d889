"""Sessions that outlive their connection: what comes again, with which packet ids, and when they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.clients.rows import SESSION, SessionRow, session_key
from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
EXPIRES = b"\x02\0\0\0\x05"


def retention_feed(gateway: Gateway, client_id: str = "s", version: int = 4) -> Peer:
    """A client whose session stays."""
    return gateway.connect(client_id, version, clean=False, props=EXPIRY)


def test_messages_of_an_absence_come_later_in_order(gateway: Gateway) -> None:
    retention_feed(gateway).subscribe(("t", 1))
    retention_feed(gateway).drop()
    pub = gateway.connect("p")
    for i in range(5):
        pub.publish("t", bytes((i,)), qos=i % 3, packet_id=i + 1)
        pub.send(f.ack(f.PUBREL, i + 1))
    sub = retention_feed(gateway)
    assert sub.session_present
    got = sub.publishes()
    # QoS 0 is not kept for a client that is away.
    assert [m.payload[0] for m in got] == [1, 2, 4]
    assert [m.packet_id for m in got] == [1, 2, 3]
    assert not any(m.dup for m in got)
    pub.publish("t", b"live")
    assert [m.payload for m in sub.publishes()] == [b"live"]


@pytest.mark.parametrize("topic", ["t", "$share/g/t"])
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_of_qos_0_wait_too_if_that_is_asked(tmp_path: Path, topic: str, qos: int) -> None:
    """Those published so, and those that a subscription at QoS 0 makes so."""
    gateway = Gateway(tmp_path / "data", MqttOptions(queue_qos0_messages=True))
    retention_feed(gateway).subscribe((topic, qos))
    retention_feed(gateway).drop()
    pub = gateway.connect("p")
    for i in range(4):
        pub.publish("t", bytes((i,)), qos=i % 2, packet_id=i + 1 if i % 2 else 0)
    got = retention_feed(gateway).publishes()
    assert [(m.payload[0], m.qos) for m in got] == [(i, min(i % 2, qos)) for i in range(4)]
    gateway.stop()


def test_unacknowledged_messages_come_again_with_their_ids_and_dup__mqtt5_4_4_0_1(gateway: Gateway) -> None:
    sub = retention_feed(gateway)
    sub.subscribe(("t", 2))
    pub = gateway.connect("p")
    for i in range(6):
        pub.publish("t", bytes((i,)), qos=1 + i % 2, packet_id=i + 1)
    first = sub.publishes()
    assert [m.qos for m in first] == [1, 2, 1, 2, 1, 2]
    sub.send(f.ack(f.PUBACK, 3) + f.ack(f.PUBREC, 4))
    sub.drop()
    pub.publish("t", b"new", qos=1, packet_id=9)
    sub = retention_feed(gateway)
    released, *again = sub.take()
    assert f.parse_ack(released, 4) == (4, 0) and released.kind == f.PUBREL
    messages = [f.parse_publish(p, 4) for p in again]
    assert [(m.packet_id, m.dup) for m in messages] == [
        (1, True),
        (2, True),
        (5, True),
        (6, True),
        (7, False),
    ]
    assert [m.payload for m in messages[:4]] == [first[i].payload for i in (0, 1, 4, 5)]
    sub.send(b"".join((f.ack(f.PUBACK, 1), f.ack(f.PUBACK, 5), f.ack(f.PUBACK, 7), f.ack(f.PUBCOMP, 4))))
    sub.send(f.ack(f.PUBREC, 2) + f.ack(f.PUBREC, 6) + f.ack(f.PUBCOMP, 2) + f.ack(f.PUBCOMP, 6))
    sub.drop()
    assert retention_feed(gateway).take() == []


def test_a_smaller_window_sends_again_within_it(gateway: Gateway) -> None:
    sub = retention_feed(gateway, version=5)
    sub.subscribe(("t", 1))
    pub = gateway.connect("p")
    pub.send(b"".join(f.publish("t", bytes((i,)), qos=1, packet_id=i + 1) for i in range(10)))
    assert len(sub.publishes()) == 10
    sub = gateway.connect("s", 5, clean=False, props=EXPIRY + b"\x21\0\x02")
    seen = []
    for _ in range(5):
        got = sub.publishes()
        assert len(got) == 2 and all(m.dup for m in got)
        seen += [m.packet_id for m in got]
        sub.send(b"".join(f.ack(f.PUBACK, m.packet_id) for m in got))
    assert seen == list(range(1, 11))


def test_a_session_ends_when_its_time_is_over(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05")
    sub.subscribe(("t", 1))
    sub.drop()
    gateway.advance(4.9)
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05")
    assert sub.session_present
    sub.drop()
    gateway.advance(5.1)
    assert len(gateway.clients) == 0
    assert not gateway.connect("s", 5, clean=False).session_present


def test_a_session_comes_back_without_a_row_and_has_all_its_time_after_a_crash(
    gateway: Gateway, tmp_path: Path
) -> None:
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05")
    sub.subscribe(("t", 1))
    sub.drop()
    gateway.advance(4.0)
    put = gateway.log.appender.next_lsn
    assert gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05").session_present
    assert gateway.log.appender.next_lsn == put
    again = gateway.crash(tmp_path / "crashed")
    try:
        again.advance(4.9)  # more than was left when it came back
        assert again.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05").session_present
    finally:
        again.stop()


def test_a_session_that_comes_back_otherwise_puts_its_row(gateway: Gateway, tmp_path: Path) -> None:
    """With a will, and another expiry: after a crash these hold."""
    gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05").drop()
    gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x09", will=("w", b"gone", 0, True))
    again = gateway.crash(tmp_path / "crashed")
    try:
        again.advance(8.9)
        assert again.vhost.retained.get(b"w", again.log.wall_ms()) is not None
        assert again.connect("s", 5, clean=False, props=b"\x11\0\0\0\x09").session_present
    finally:
        again.stop()


def test_disconnect_may_change_the_expiry__mqtt5_3_14_2_2(gateway: Gateway) -> None:
    gateway.connect("s", 5, clean=False, props=EXPIRY).send(f.disconnect(0, b"\x11\0\0\0\0"))
    assert len(gateway.clients) == 0
    gateway.connect("s", 5, clean=False, props=EXPIRY).send(f.disconnect(0, b"\x11\0\0\0\x02"))
    gateway.advance(2.1)
    assert len(gateway.clients) == 0


def test_clean_start_begins_anew__mqtt5_3_1_2_4(gateway: Gateway) -> None:
    sub = retention_feed(gateway)
    sub.subscribe(("t", 1))
    sub.drop()
    gateway.connect("p").publish("t", qos=1, packet_id=1)
    sub = gateway.connect("s", clean=True)
    assert not sub.session_present
    assert sub.take() == []
    sub.drop()
    assert not retention_feed(gateway).session_present


def test_messages_in_flight_at_unsubscribe_are_completed__mqtt5_3_10_4_3(gateway: Gateway) -> None:
    sub = retention_feed(gateway)
    sub.subscribe(("t", 2))
    gateway.connect("p").publish("t", qos=2, packet_id=1)
    assert len(sub.publishes()) == 1
    sub.send(f.unsubscribe(2, "t")).take()
    sub.drop()
    sub = retention_feed(gateway)
    (got,) = sub.publishes()
    assert got.dup and got.packet_id == 1
    assert sub.send(f.ack(f.PUBREC, 1)).bytes_taken() == f.ack(f.PUBREL, 1)


def test_an_id_whose_message_is_gone_is_released(gateway: Gateway) -> None:
    """A message that the client takes no more does not come again; its id, which it may hold, is released."""
    sub = retention_feed(gateway, version=5)
    sub.subscribe(("t", 2))
    pub = gateway.connect("p", 5)
    pub.publish("t", bytes(100), qos=2, packet_id=1)
    pub.publish("t", bytes(100), qos=1, packet_id=2)
    assert len(sub.publishes()) == 2
    sub.drop()
    pub.publish("t", b"3", qos=1, packet_id=3)
    sub = gateway.connect("s", 5, clean=False, props=EXPIRY + b"\x27\0\0\0\x40")
    released, message = sorted(sub.take(), key=lambda p: -p.kind)
    assert released.kind == f.PUBREL and f.parse_ack(released, 5) == (1, 0)
    assert f.parse_publish(message, 5).payload == b"3"
    sub.send(f.ack(f.PUBCOMP, 1, 0x92) + f.ack(f.PUBACK, 3))
    (client,) = [c for c in gateway.clients if c.client_id == "s"]
    assert client.ids.inflight.held == 0


@pytest.mark.parametrize("retained", [False, True])
def test_sent_messages_do_not_expire__mqtt5_4_3_3_7(gateway: Gateway, retained: bool) -> None:
    """On the next connection, and over a restart; the time left is then 0."""
    pub = gateway.connect("p", 5)
    sub = retention_feed(gateway, version=5)
    if not retained:
        sub.subscribe(("t", 2))
    for qos in (1, 2):
        topic = f"t/{qos}" if retained else "t"
        pub.publish(topic, b"x", qos=qos, packet_id=1, retain=retained, props=EXPIRES)
    if retained:
        sub.subscribe(("t/+", 2))
    sent = sub.publishes()
    assert len(sent) == 2
    sub.drop()
    gateway.advance(6)
    for restart in (False, True):
        if restart and not retained:
            gateway = gateway.restart()
        sub = retention_feed(gateway, version=5)
        again = sub.publishes()
        assert all(m.dup and m.properties[2] == [0] for m in again)
        assert [m.packet_id for m in again] == [m.packet_id for m in sent]
        sub.drop()


# Restarts


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_survives_a_clean_stop(gateway: Gateway, version: int) -> None:
    sub = retention_feed(gateway, version=version)
    sub.subscribe(("t", 1), ("u/#", 2))
    pub = gateway.connect("p")
    pub.send(b"".join(f.publish("t", bytes((i,)), qos=1, packet_id=i + 1) for i in range(4)))
    assert len(sub.publishes()) == 4
    sub.send(f.ack(f.PUBACK, 2))
    sub.drop()
    pub.publish("u/x", b"away", qos=2, packet_id=9)
    again = gateway.restart()
    sub = retention_feed(again, version=version)
    assert sub.session_present
    assert [(m.payload, m.packet_id, m.dup, m.qos) for m in sub.publishes()] == [
        (b"\0", 1, True, 1),
        (b"\x02", 3, True, 1),
        (b"\x03", 4, True, 1),
        (b"away", 5, False, 2),
    ]
    again.connect("p").publish("t", b"after", qos=1, packet_id=1)
    assert [(m.payload, m.packet_id) for m in sub.publishes()] == [(b"after", 6)]
    again.stop()


def test_a_clean_session_writes_nothing(gateway: Gateway) -> None:
    peer = gateway.connect("s", 5)
    peer.subscribe(("t", 2))
    peer.publish("t", qos=2, packet_id=1)
    (publish,) = [p for p in peer.take() if p.kind == f.PUBLISH]
    peer.send(f.ack(f.PUBREC, 1) + f.ack(f.PUBREL, 1))
    gateway.advance(1)
    for table in ("mqtt.session", "mqtt.qos2in", "mqtt.out", "cursor", "queue", "binding", "feed"):
        assert list(gateway.log.tables.items(table)) == [], table
    assert publish.flags >> 1 & 3 == 2


def test_an_expired_session_is_gone_after_a_restart(gateway: Gateway) -> None:
    peer = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\0\x05")
    peer.subscribe(("t", 2))
    peer.publish("t", qos=2, packet_id=3)
    peer.drop()
    for table in ("mqtt.session", "session", "filter", "mqtt.qos2in", "mqtt.out"):
        assert len(list(gateway.log.tables.items(table))) == 1, table
    gateway.stop()
    gateway.clock.now += 6
    again = Gateway(gateway.folder, clock=gateway.clock)
    again.advance(0)
    assert len(again.clients) == 0
    for table in (
        "mqtt.session",
        "session",
        "filter",
        "mqtt.qos2in",
        "mqtt.out",
        "cursor",
        "binding",
        "queue",
    ):
        assert list(again.log.tables.items(table)) == [], table
    assert again.vhost.sessions.client_ids() == []
    again.stop()


def test_subscriptions_keep_their_options_over_a_restart(gateway: Gateway) -> None:
    sub = retention_feed(gateway, version=5)
    sub.subscribe(("t", 0x09), ("own", 0x05), props=b"\x0b\x21")
    again = gateway.restart()
    assert again.broker.origin_readers == 1
    sub = retention_feed(again, version=5)
    again.connect("p").publish("t", b"1", qos=1, packet_id=1, retain=True)
    sub.publish("own", b"2")
    (packet,) = sub.take()
    assert packet.flags == 0x03
    assert packet.body == f.text("t") + b"\0\1" + b"\x02\x0b\x21" + b"1"
    again.stop()


def test_no_local_knows_its_own_messages_and_only_those_over_a_restart(gateway: Gateway) -> None:
    """Numbers that each run gave anew made one session's messages another's, and they were lost."""
    pub = gateway.connect("p", 5)
    sub = retention_feed(gateway, version=5)
    sub.subscribe(("t", 0x05))
    sub.publish("t", b"its own", qos=1, packet_id=1)
    sub.drop()
    pub.publish("t", b"another's", qos=1, packet_id=1)
    again = gateway.restart()
    assert [m.payload for m in retention_feed(again, version=5).publishes()] == [b"another's"]
    again.stop()


class Exactly:
    """One QoS 2 message from publisher to subscriber; a crash after any packet, and both clients go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0
        self.gateway = Gateway(folder / "0", fsync="group")
        retention_feed(self.gateway, "sub").subscribe(("t", 2))

    def crash(self) -> None:
        self.runs += 1
        old = self.gateway
        self.gateway = old.crash(self.folder / str(self.runs))
        old.stop()


@pytest.mark.parametrize("crashes", [(i,) for i in range(9)] + [(1, 3), (2, 4), (3, 3), (4, 5), (5, 6)])
def test_qos_2_is_exactly_once_over_a_kill_at_every_step(tmp_path: Path, crashes: tuple[int, ...]) -> None:
    """Publisher and subscriber hold their own state as the specification says and lose every packet that was
    under way when the gateway died; the application of the subscriber gets the message once."""
    world = Exactly(tmp_path)
    publishing = "publish"
    got: list[bytes] = []
    holding: set[int] = set()
    step = 0
    left = list(crashes)
    done = False
    pub: Peer | None = None
    sub: Peer | None = None

    def reach() -> bool:
        """A step is done; True when the gateway dies here."""
        nonlocal step
        step += 1
        if step - 1 in left:
            left.remove(step - 1)
            world.crash()
            return True
        return False

    for _ in range(40):
        if pub is None or sub is None:
            pub = retention_feed(world.gateway, "pub")
            sub = retention_feed(world.gateway, "sub")
            if publishing == "publish":
                pub.publish("t", b"once", qos=2, packet_id=1, dup=step > 0)
            elif publishing == "release":
                pub.send(f.ack(f.PUBREL, 1))
        if reach():
            pub = sub = None
            continue
        world.gateway.advance(1)
        for packet in pub.take():
            if packet.kind == f.PUBREC and publishing == "publish":
                publishing = "release"
            if packet.kind == f.PUBREC:
                pub.send(f.ack(f.PUBREL, 1))
            elif packet.kind == f.PUBCOMP:
                publishing = "done"
        if reach():
            pub = sub = None
            continue
        crashed = False
        for packet in sub.take():
            if packet.kind == f.PUBLISH:
                message = f.parse_publish(packet, 4)
                if message.packet_id not in holding:
                    holding.add(message.packet_id)
                    got.append(message.payload)
                sub.send(f.ack(f.PUBREC, message.packet_id))
            elif packet.kind == f.PUBREL:
                packet_id = f.parse_ack(packet, 4)[0]
                holding.discard(packet_id)
                sub.send(f.ack(f.PUBCOMP, packet_id))
            if reach():
                crashed = True
                break
        if crashed:
            pub = sub = None
            continue
        done = publishing == "done" and bool(got) and not holding
        if done and not left:
            break
    assert got == [b"once"]
    assert publishing == "done"
    world.gateway.advance(1)
    sub = retention_feed(world.gateway, "sub")
    again = [p for p in sub.take() if p.kind == f.PUBLISH]
    assert again == []
    world.gateway.stop()


def test_a_qos_2_id_is_durable_before_pubrec(tmp_path: Path) -> None:
    """After PUBREC the publisher sends PUBREL only, after a kill too: the id must be known then."""
    gateway = Gateway(tmp_path / "a", fsync="group")
    pub = retention_feed(gateway, "pub")
    pub.publish("t", qos=2, packet_id=7)
    assert [p.kind for p in pub.take()] == [f.PUBREC]
    again = gateway.crash(tmp_path / "b")
    (client,) = again.clients
    assert 7 in client.ids.received
    pub = retention_feed(again, "pub", 5)
    assert pub.send(f.ack(f.PUBREL, 7)).bytes_taken() == f.ack(f.PUBCOMP, 7)
    third = again.crash(tmp_path / "c")
    (client,) = third.clients
    assert 7 not in client.ids.received
    for each in (gateway, again, third):
        each.stop()


def row_of(gateway: Gateway, client_id: str = "s") -> SessionRow:
    row = gateway.log.tables.get(SESSION, session_key("/", client_id))
    assert row is not None
    return SessionRow.decode(row)


def test_a_client_that_comes_back_soon_writes_nothing(gateway: Gateway) -> None:
    retention_feed(gateway).drop()
    gateway.settle()
    written = gateway.log.written_lsn
    for _ in range(3):
        retention_feed(gateway).drop()
        gateway.settle()
    assert gateway.log.written_lsn == written
    assert row_of(gateway).ends_at is None


def ends_of(gateway: Gateway) -> dict[str, float | None]:
    return {client.client_id: client.ends_at for client in gateway.clients}


def test_a_clean_stop_keeps_the_ends_of_all_sessions(gateway: Gateway) -> None:
    for i in range(5000):
        retention_feed(gateway, f"s{i}").drop()
        gateway.advance(0.01)
    ends = ends_of(gateway)
    assert len(set(ends.values())) > 1000
    again = gateway.restart()
    assert ends_of(again) == ends
    again.advance(10)
    retention_feed(again, "s7").drop()
    ends["s7"] = ends_of(again)["s7"]
    third = again.restart()
    assert ends_of(third) == ends
    third.stop()


def test_after_a_crash_the_times_of_a_clean_stop_do_not_count(gateway: Gateway, tmp_path: Path) -> None:
    retention_feed(gateway).drop()
    again = gateway.restart()
    (before,) = ends_of(again).values()
    again.advance(1000)
    third = again.crash(tmp_path / "crashed")
    (after,) = ends_of(third).values()
    assert before is not None and after is not None and after >= before + 1000
    third.stop()
    again.stop()
