"""Messages through sessions: QoS in and out, options of subscriptions, acknowledgements and their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.delivery import delivery
from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_lower_qos_holds__mqtt5_3_8_4_8(
    gateway: Gateway, published: int, granted: int, version: int
) -> None:
    sub = gateway.connect("s", version)
    assert sub.subscribe(("a/+", granted)) == [granted]
    gateway.connect("p", version).publish("a/b", b"hello", qos=published, packet_id=7)
    (got,) = sub.publishes()
    assert (got.topic, got.payload, got.qos, got.retain, got.dup) == (
        b"a/b",
        b"hello",
        min(published, granted),
        False,
        False,
    )


@pytest.mark.parametrize("granted", [0, 1])
def test_a_lone_message_is_sent_in_the_turn_of_its_read_before_it_is_written(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    written: list[int] = []
    flush = Peer.flush

    def noting_flush(peer: Peer) -> None:
        if peer.out.size > 4:
            written.append(gateway.log.written_lsn)
        flush(peer)

    monkeypatch.setattr(Peer, "flush", noting_flush)
    sub, peer = gateway.connect("s"), gateway.connect("p")
    sub.subscribe(("t", granted))
    gateway.loop.advance(1.0)
    written.clear()
    before = gateway.log.written_lsn
    peer.publish("t", b"message", qos=1, packet_id=1, settle=False)
    assert written == [before]
    assert gateway.log.written_lsn > before
    gateway.loop.advance(1.0)
    peer.publish("t", b"another", qos=0, settle=False)
    assert len(written) == 2, "the queue still waits at its feeds"
    assert [p.payload for p in sub.publishes()] == [b"message", b"another"]


def test_a_consumer_that_fails_on_a_lone_message_is_let_go_and_the_message_is_kept(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(client: object, tags: object) -> None:
        raise RuntimeError("a defect of ours")

    sub, peer = gateway.connect("s", clean=False), gateway.connect("p")
    sub.subscribe(("t", 1))
    gateway.loop.advance(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(delivery, "choose", broken)
        peer.publish("t", b"message", qos=1, packet_id=1)
    assert "a defect of ours" in caplog.text
    assert sub.closed
    assert [p.payload for p in gateway.connect("s", clean=False).publishes()] == [b"message"]


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_come_in_the_order_of_the_messages__mqtt5_4_6_0_2(
    gateway: Gateway, version: int
) -> None:
    gateway.connect("s", version).subscribe(("#", 0))
    peer = gateway.connect("p", version)
    ids = [5, 3, 9, 1]
    props = b"" if version == 5 else None
    peer.send(b"".join(f.publish("t", b"x", qos=1, packet_id=i, props=props) for i in ids))
    assert peer.bytes_taken() == b"".join(f.ack(f.PUBACK, i) for i in ids)


def test_puback_of_5_0_says_that_nobody_subscribed(gateway: Gateway) -> None:
    peer = gateway.connect("p", 5)
    assert peer.publish("t", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x10)
    assert peer.publish("t", qos=2, packet_id=2).bytes_taken() == f.ack(f.PUBREC, 2, 0x10)
    assert gateway.connect("q").publish("t", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1)


def test_qos_2_in_is_delivered_once__mqtt5_4_3_3(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("t", 0))
    peer = gateway.connect("p")
    for dup in (False, True, True):
        assert peer.publish("t", qos=2, packet_id=4, dup=dup).bytes_taken() == f.ack(f.PUBREC, 4)
    assert len(sub.publishes()) == 1
    for _ in range(2):
        assert peer.send(f.ack(f.PUBREL, 4)).bytes_taken() == f.ack(f.PUBCOMP, 4)
    peer.publish("t", qos=2, packet_id=4)
    assert len(sub.publishes()) == 1


def test_pubrel_of_an_unknown_id_is_told_in_5_0(gateway: Gateway) -> None:
    assert gateway.connect("p", 5).send(f.ack(f.PUBREL, 4)).bytes_taken() == f.ack(f.PUBCOMP, 4, 0x92)


def test_qos_2_out_takes_four_packets(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("t", 2))
    gateway.connect("p").publish("t", qos=2, packet_id=1)
    (got,) = sub.publishes()
    assert (got.qos, got.packet_id) == (2, 1)
    for _ in range(2):
        assert sub.send(f.ack(f.PUBREC, 1)).bytes_taken() == f.ack(f.PUBREL, 1)
    assert sub.send(f.ack(f.PUBCOMP, 1)).bytes_taken() == b""
    (client,) = [c for c in gateway.clients if c.client_id == "s"]
    assert client.ids.inflight.held == 0
    assert client.queue.cursor.outstanding == 0


def test_pubrec_of_an_unknown_id_is_released(gateway: Gateway) -> None:
    assert gateway.connect("s", 5).send(f.ack(f.PUBREC, 8)).bytes_taken() == f.ack(f.PUBREL, 8, 0x92)
    assert gateway.connect("t", 4).send(f.ack(f.PUBREC, 8)).bytes_taken() == f.ack(f.PUBREL, 8)


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_a_pubrec_that_refuses_gets_no_pubrel(gateway: Gateway, reason: int) -> None:
    """In every state: of an unknown id, of a message under way, and again after its PUBREL (mqtt5:4.3.3)."""
    sub = gateway.connect("s", 5)
    sub.subscribe(("t", 2))
    assert sub.send(f.ack(f.PUBREC, 8, reason)).bytes_taken() == b""
    gateway.connect("p").publish("t", b"1", qos=1, packet_id=1).publish("t", b"2", qos=2, packet_id=2)
    gateway.connect("q").publish("t", b"3", qos=2, packet_id=1)
    first, second = (m for m in sub.publishes() if m.qos == 2)
    assert sub.send(f.ack(f.PUBREC, first.packet_id, reason)).bytes_taken() == b""
    assert [p.kind for p in sub.send(f.ack(f.PUBREC, second.packet_id)).take()] == [f.PUBREL]
    assert sub.send(f.ack(f.PUBREC, second.packet_id, reason)).bytes_taken() == b""
    sub.send(f.ack(f.PUBCOMP, second.packet_id))
    assert not sub.closed


def test_packet_ids_rise_from_one_and_come_round(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("t", 1))
    pub = gateway.connect("p")
    seen = []
    for _ in range(260):
        pub.send(b"".join(f.publish("t", b"", qos=1, packet_id=1 + i) for i in range(256)))
        got = sub.publishes()
        seen += [m.packet_id for m in got]
        sub.send(b"".join(f.ack(f.PUBACK, m.packet_id) for m in got))
    assert seen == [i % 65535 + 1 for i in range(260 * 256)]


def test_the_window_of_the_client_is_kept__mqtt5_4_9_0_2(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5, props=b"\x21\0\x03")
    sub.subscribe(("t", 2))
    pub = gateway.connect("p")
    for i in range(1, 11):
        pub.publish("t", bytes((i,)), qos=i % 2 + 1, packet_id=i)
    got = sub.publishes()
    assert [m.payload for m in got] == [b"\x01", b"\x02", b"\x03"]
    assert [m.qos for m in got] == [2, 1, 2]
    # A QoS 2 message holds its slot to PUBCOMP.
    assert [p.kind for p in sub.send(f.ack(f.PUBREC, 1)).take()] == [f.PUBREL]
    assert [m.payload for m in sub.send(f.ack(f.PUBCOMP, 1)).publishes()] == [b"\x04"]
    assert [m.payload for m in sub.send(f.ack(f.PUBREC, 3, 0x80)).publishes()] == [b"\x05"]
    assert [m.payload for m in sub.send(f.ack(f.PUBACK, 2)).publishes()] == [b"\x06"]


def test_a_publisher_above_the_receive_maximum_is_cut_off__mqtt5_3_3_4_9(gateway: Gateway) -> None:
    gateway.options = MqttOptions(receive_maximum=3)
    peer = gateway.connect("p", 5)
    for i in range(1, 4):
        peer.publish("t", qos=2, packet_id=i)
    assert len(peer.take()) == 3
    peer.publish("t", qos=2, packet_id=3, dup=True)
    assert len(peer.take()) == 1
    assert peer.publish("t", qos=2, packet_id=4).bytes_taken() == b"\xe0\x01\x93"
    again = gateway.connect("p", 5)
    for i in range(1, 10):
        again.publish("t", qos=2, packet_id=i).send(f.ack(f.PUBREL, i))
    assert len(again.take()) == 18


def test_overlapping_subscriptions_give_one_copy_with_all_identifiers(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5)
    sub.subscribe(("a/#", 0), props=b"\x0b\x05")
    sub.subscribe(("a/+", 2), props=b"\x0b\x07")
    sub.subscribe(("b", 1))
    gateway.connect("p").publish("a/b", qos=2, packet_id=1)
    (packet,) = sub.take()
    got = f.parse_publish(f.Packet(packet.kind, packet.flags, packet.body), 4)
    assert got.qos == 2
    assert sorted((got.payload[1:3], got.payload[3:5])) == [b"\x0b\x05", b"\x0b\x07"]
    assert got.payload[0] == 4


def test_a_new_subscribe_of_the_same_filter_replaces_its_options__mqtt5_3_8_4_3(gateway: Gateway) -> None:
    sub, pub = gateway.connect("s", 5), gateway.connect("p")
    sub.subscribe(("t", 2))
    sub.subscribe(("t", 0))
    pub.publish("t", qos=2, packet_id=1)
    (got,) = sub.publishes()
    assert got.qos == 0


def test_no_local_keeps_own_messages_away__mqtt5_3_8_3_3(gateway: Gateway) -> None:
    one, two = gateway.connect("a", 5), gateway.connect("b", 5)
    one.subscribe(("t", 0x04))
    one.subscribe(("t/x", 0x05), ("t/+", 0))
    two.subscribe(("#", 0))
    one.publish("t", b"own")
    two.publish("t", b"other")
    assert [m.payload for m in one.publishes()] == [b"other"]
    assert [m.payload for m in two.publishes()] == [b"own", b"other"]
    # Where another filter without it matches, that one counts alone.
    one.publish("t/x", b"both", qos=1, packet_id=1)
    assert [(m.payload, m.qos) for m in one.take() if m.kind == 3 for m in [f.parse_publish(m, 5)]] == [
        (b"both", 0)
    ]


def test_retain_as_published(gateway: Gateway) -> None:
    keeps, plain = gateway.connect("a", 5), gateway.connect("b", 5)
    keeps.subscribe(("t", 0x08))
    plain.subscribe(("t", 0))
    gateway.connect("p").publish("t", retain=True)
    assert [m.retain for m in keeps.publishes()] == [True]
    assert [m.retain for m in plain.publishes()] == [False]


def test_properties_are_forwarded_in_order(gateway: Gateway) -> None:
    pair = b"\x26" + f.text("k") + f.text("v")
    block = (
        b"\x01\x01\x03"
        + f.text("text/plain")
        + pair
        + b"\x08"
        + f.text("r/t")
        + b"\x09"
        + f.text(b"\0\1")
        + pair
    )
    sub = gateway.connect("s", 5)
    sub.subscribe(("t", 0))
    old = gateway.connect("o", 4)
    old.subscribe(("t", 0))
    gateway.connect("p", 5).publish("t", b"payload", props=block)
    (got,) = sub.publishes()
    assert (got.block, got.payload) == (block, b"payload")
    assert [m.payload for m in old.publishes()] == [b"payload"]


def test_topic_aliases_are_resolved_before_the_log(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5)
    sub.subscribe(("#", 0))
    pub = gateway.connect("p", 5)
    pair = b"\x26" + f.text("k") + f.text("v")
    pub.publish("t/1", b"1", props=b"\x23\0\x01")
    pub.publish("", b"2", props=pair + b"\x23\0\x01" + pair)
    pub.publish("t/2", b"3", props=pair + b"\x23\0\x01")
    pub.publish("", b"4", props=b"\x23\0\x01" + pair)
    got = sub.publishes()
    assert [(m.topic, m.payload, m.block) for m in got] == [
        (b"t/1", b"1", b""),
        (b"t/1", b"2", pair + pair),
        (b"t/2", b"3", pair),
        (b"t/2", b"4", pair),
    ]
    assert pub.publish("", b"5", props=b"\x23\0\x02").bytes_taken() == b"\xe0\x01\x82"
    assert gateway.connect("q", 5).publish("t", props=b"\x23\0\x41").bytes_taken() == b"\xe0\x01\x94"


def test_topic_aliases_towards_a_client_that_takes_them(gateway: Gateway) -> None:
    options = {"clean": False, "props": b"\x11\0\0\x10\0\x22\0\x02"}
    sub = gateway.connect("s", 5, **options)
    sub.subscribe(("#", 2))
    pub = gateway.connect("p", 5)
    block = b"\x01\x01"
    topics = ["topic/1", "topic/2", "topic/1", "topic/3", "abc", "topic/2", "topic/1"]
    for i, topic in enumerate(topics):
        pub.publish(topic, bytes((i,)), qos=i % 2, packet_id=i + 1, props=block)
    one, two = b"\x23\0\x01", b"\x23\0\x02"
    assert [(m.topic, m.block, m.payload[0]) for m in sub.publishes()] == [
        (b"topic/1", one + block, 0),
        (b"topic/2", two + block, 1),
        (b"", one + block, 2),
        (b"topic/3", block, 3),
        (b"abc", block, 4),
        (b"", two + block, 5),
        (b"", one + block, 6),
    ]
    # QoS 2 is held back until its id is durable: it neither sets nor uses an alias.
    pub.publish("topic/1", b"7", qos=2, packet_id=20)
    assert [(m.topic, m.block) for m in sub.publishes()] == [(b"topic/1", b"")]
    sub.drop()
    sub = gateway.connect("s", 5, **options)
    assert [(m.topic, m.block) for m in sub.publishes()] == [
        (b"topic/2", one + block),
        (b"topic/3", two + block),
        (b"", one + block),
        (b"topic/1", b""),
    ]


def test_an_alias_that_would_make_a_packet_too_large_is_not_set(gateway: Gateway) -> None:
    pub = gateway.connect("p")
    for sizes, expected in (
        ((12, 15, 16, 12), [(b"topic/1", 12, 1), (b"", 15, 1), (b"", 16, 1), (b"", 12, 1)]),
        # 14: 28 bytes without an alias, 31 with.
        ((14, 12, 12), [(b"topic/1", 14, 0), (b"topic/1", 12, 1), (b"", 12, 1)]),
    ):
        sub = gateway.connect("s", 5, props=b"\x22\0\x02\x27\0\0\0\x1e")
        sub.subscribe(("topic/+", 1))
        for size in sizes:
            pub.publish("topic/1", bytes(size), qos=1, packet_id=1)
        alias = b"\x23\0\x01"
        assert [(m.topic, len(m.payload), m.block) for m in sub.publishes()] == [
            (topic, size, alias * set_) for topic, size, set_ in expected
        ]


def test_message_expiry_counts_down_and_ends(gateway: Gateway) -> None:
    def expiry(s: int) -> bytes:
        return b"\x02" + s.to_bytes(4, "big")

    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\x10\0")
    sub.subscribe(("t", 1))
    sub.drop()
    pub = gateway.connect("p", 5)
    pub.publish("t", b"gone", qos=1, packet_id=1, props=expiry(5))
    pub.publish("t", b"left", qos=1, packet_id=2, props=b"\x01\x01" + expiry(60))
    # Longer than a record's ttl in milliseconds can say.
    pub.publish("t", b"long", qos=1, packet_id=3, props=expiry(2**32 - 1))
    pub.publish("t", b"never", qos=1, packet_id=4)
    gateway.advance(10)
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\x10\0")
    assert [(m.payload, m.block) for m in sub.publishes()] == [
        (b"left", b"\x01\x01" + expiry(50)),
        (b"long", expiry(2**32 - 11)),
        (b"never", b""),
    ]


def test_a_message_above_the_clients_maximum_is_skipped__mqtt5_3_1_2_24(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5, props=b"\x27\0\0\0\x32")
    sub.subscribe(("t", 1))
    pub = gateway.connect("p")
    for i, size in enumerate((10, 42, 43, 200, 10)):
        pub.publish("t", bytes(size), qos=1, packet_id=i + 1)
    got = sub.publishes()
    assert [(len(m.payload), m.packet_id) for m in got] == [(10, 1), (42, 2), (10, 3)]
    (client,) = [c for c in gateway.clients if c.client_id == "s"]
    assert client.queue.cursor.outstanding == 3


def test_a_full_output_takes_no_more_until_it_has_room(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("t", 0))
    sub.space = 250
    pub = gateway.connect("p")
    pub.send(b"".join(f.publish("t", bytes((i,)) * 100) for i in range(10)))
    assert 0 < len(sub.publishes()) < 10
    before = sub.session.counts()[1]
    sub.space = 1 << 20
    sub.session.writable()
    assert len(sub.publishes()) + before == 10


def test_nothing_comes_after_unsubscribe(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5)
    sub.subscribe(("t", 0), ("u", 0))
    sub.send(f.unsubscribe(3, "t", "none", version=5))
    (unsuback,) = sub.take()
    assert unsuback.body == b"\0\x03\0" + b"\x00\x11"
    pub = gateway.connect("p")
    pub.publish("t")
    pub.publish("u", b"u")
    assert [m.payload for m in sub.publishes()] == [b"u"]


def test_sys_topics_cannot_be_published_but_the_connection_stays(gateway: Gateway) -> None:
    peer = gateway.connect("p", 5)
    peer.subscribe(("$SYS/#", 0))
    assert peer.publish("$SYS/x", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x87)
    assert peer.publish("$SYS/x", qos=2, packet_id=1).bytes_taken() == f.ack(f.PUBREC, 1, 0x87)
    assert peer.publish("$SYS/x").bytes_taken() == b""
    # The refused QoS 2 id is free again.
    assert peer.publish("t", qos=2, packet_id=1).bytes_taken() == f.ack(f.PUBREC, 1, 0x10)


def test_fan_out_gives_every_session_the_same_bytes(gateway: Gateway) -> None:
    fours = [gateway.connect(f"a{i}") for i in range(5)]
    fives = [gateway.connect(f"b{i}", 5) for i in range(5)]
    for peer in fours + fives:
        peer.subscribe(("t/#", 0))
    small = gateway.connect("c", 5, props=b"\x27\0\0\0\x40")
    small.subscribe(("t/#", 0))
    pub = gateway.connect("p", 5)
    for round_ in range(3):
        messages = [(f"t/{i}", bytes((round_, i)) * (i + 1) * 10) for i in range(20)]
        pub.send(b"".join(f.publish(topic, payload, props=b"\x01\x00") for topic, payload in messages))
        expected = [(topic.encode(), payload) for topic, payload in messages]
        for peer in fours + fives:
            assert [(m.topic, m.payload) for m in peer.publishes()] == expected
        fits = [(t, p) for t, p in expected if len(p) < 50]
        assert [(m.topic, m.payload) for m in small.publishes()] == fits


def test_a_client_is_not_read_while_too_many_answers_wait(gateway: Gateway) -> None:
    gateway.connect("s").subscribe(("t", 1))
    peer = gateway.connect("p")
    peer.session._answers_max = 10
    for i in range(1, 16):
        peer.send(f.publish("t", qos=1, packet_id=i), settle=False)
        assert ("answers" in peer.pause_reasons) == (i > 10)
    assert peer.received == []
    assert len(peer.take()) == 15
    assert peer.pause_reasons == set()


def test_no_answer_leaves_before_what_it_waits_for(tmp_path: Path) -> None:
    """With a disk that is synced: neither PUBACK nor the QoS 2 packets of a durable session come in the
    same turn.
    """
    gateway = Gateway(tmp_path / "data", fsync="group")
    sub = gateway.connect("s", clean=False)
    sub.subscribe(("t", 2))
    pub = gateway.connect("p", clean=False)
    pub.send(
        f.publish("t", b"1", qos=1, packet_id=1) + f.publish("t", b"2", qos=2, packet_id=2), settle=False
    )
    # Turns of the loop, without what the committer's thread has to say.
    gateway.loop.settle()
    assert pub.received == []
    assert [f.parse_publish(p, 4).payload for p in sub.received] == [b"1"]
    assert [p.kind for p in pub.take()] == [f.PUBACK, f.PUBREC]
    assert [f.parse_publish(p, 4).payload for p in sub.take()] == [b"1", b"2"]
    pub.send(f.ack(f.PUBREL, 2), settle=False)
    gateway.loop.settle()
    assert pub.received == []
    assert [p.kind for p in pub.take()] == [f.PUBCOMP]
    gateway.stop()
