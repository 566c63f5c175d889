"""To any bytes of a client, its session answers or ends. Nothing raises, and the gateway goes on
serving other clients.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway
from tests.support.mqtt_streams import packets

FILTERS = st.sampled_from(["#", "r/+", "$SYS/#", "$share/g/#", "+", "r", "a/#/b", ""]) | st.text(max_size=5)


@st.composite
def anything(draw: st.DrawFn, version: int) -> bytes:
    """A packet of a client: mostly a right one."""
    kind = draw(
        st.sampled_from(["hot"] * 4 + ["subscribe", "unsubscribe", "ping", "disconnect", "connect", "raw"])
    )
    packet_id = draw(st.integers(0, 3))
    if kind == "hot":
        return draw(packets(version))
    if kind == "subscribe":
        lines = draw(st.lists(st.tuples(FILTERS, st.integers(0, 63)), max_size=3))
        return f.subscribe(
            packet_id, *lines, version=version, props=draw(st.sampled_from([b"", b"\x0b\x05", b"\x0b\0"]))
        )
    if kind == "unsubscribe":
        return f.unsubscribe(packet_id, *draw(st.lists(FILTERS, max_size=3)), version=version)
    if kind == "disconnect":
        return f.disconnect(
            draw(st.sampled_from([None, 0, 4, 0x8E])), draw(st.none() | st.just(b"\x11\0\0\0\5"))
        )
    if kind == "connect":
        return f.connect("x", version=version)
    return f.packet(12, 0, b"") if kind == "ping" else draw(st.binary(max_size=40))


IDENTIFIED = f.packet(8, 2, b"\0\1" + b"\x02\x0b\x01" + b"\0\1r" + b"\1")
"""A SUBSCRIBE with an identifier, which comes back with each message."""


def test_no_stream_of_packets_breaks_a_session(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    watcher = gateway.connect("watcher", 5)
    watcher.subscribe(("alive", 0))

    @example((5, [[IDENTIFIED, f.packet(3, 2, b"\0\1r" + b"\0\2" + b"\0" + b"x")]]), True, True)
    @given(
        st.sampled_from([3, 4, 5]).flatmap(
            lambda v: st.tuples(st.just(v), st.lists(st.lists(anything(v), max_size=6), max_size=6))
        ),
        st.booleans(),
        st.booleans(),
    )
    def check(stream: tuple[int, list[list[bytes]]], clean: bool, connected: bool) -> None:
        version, reads = stream
        peer = gateway.peer(version)
        if connected:
            props = b"\x11\0\0\0\x14\x22\0\x02\x21\0\x03"
            peer.send(
                f.connect("hostile", version=version, clean=clean, props=props, will=("r", b"w", 1, True))
            )
        for read in reads:
            peer.send(b"".join(read))
            # A client that acknowledges what it gets, so that its packet ids move.
            for packet in peer.take():
                if packet.kind == f.PUBLISH and packet.flags & 6 and not peer.closed:
                    message = f.parse_publish(packet, version, f.IN_DELIVERY)
                    peer.send(f.ack(f.PUBACK if message.qos == 1 else f.PUBREC, message.packet_id))
                elif packet.kind == f.PUBREL and not peer.closed:
                    peer.send(f.ack(f.PUBCOMP, f.parse_ack(packet, version)[0]))
        peer.drop()
        gateway.connect("sane").publish("alive", b"yes").send(f.disconnect())
        assert [m.payload for m in watcher.publishes()] == [b"yes"]

    check()
    gateway.stop()
    forget_runs()
