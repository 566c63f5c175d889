"""Reason strings for 5.0 clients, on acknowledgements, CONNACK and DISCONNECT.

They are for people who look at a client's log, so they name the thing and the remedy. A client that said
Request Problem Information 0 gets none (mqtt5:3.1.2-29; it leaves CONNACK and DISCONNECT to us: none either),
and none makes a packet larger than the client takes (mqtt5:3.2.2-19, 3.4.2-2, 3.5.2-2, 3.9.2-1, 3.11.2-1,
3.14.2-3).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.protocols.mqtt.codec.properties import Properties

__all__ = ["ACKNOWLEDGEMENTS", "ReasonStrings", "refusal"]

_LONGEST: Final = 400
"""Characters of a reason string."""

ACKNOWLEDGEMENTS: Final = {
    reasons.NOT_AUTHORIZED: "this user may not publish here; $SYS, $share, $queue, $exclusive, $replay and "
    "$amq are the gateway's",
    reasons.TOPIC_NAME_INVALID: "no topic to publish to: too many levels, or no $delayed/<seconds>/<topic>",
    reasons.QUOTA_EXCEEDED: "a queue that gets this message is full: publish again later",
    reasons.PAYLOAD_FORMAT_INVALID: "the payload is not what its format says",
    reasons.IMPLEMENTATION_SPECIFIC: "a user property of penstock's with a value that means nothing",
    reasons.PACKET_ID_NOT_FOUND: "nothing is under way with this packet id",
}
"""Of a PUBLISH that was refused, and of a PUBREC or PUBREL for nothing. Success has no text."""

_FILTERS: Final = {
    reasons.NOT_AUTHORIZED: "this user may not read it",
    reasons.QUOTA_EXCEEDED: "another session has it alone, or the session has as many filters as it may",
    reasons.TOPIC_FILTER_INVALID: "it has too many levels, or begins with $replay and is no "
    "$replay/<-15m, time or pos:n>/<filter>",
    reasons.NO_SUBSCRIPTION_EXISTED: "the session has no such filter",
}


@functools.lru_cache(maxsize=64)  # most clients name no size, and the others the same few
def _acknowledgements(max_packet: int) -> dict[int, bytes]:
    texts = {reason: encode_properties({"reason_string": text}) for reason, text in ACKNOWLEDGEMENTS.items()}
    return {reason: block for reason, block in texts.items() if 5 + len(block) <= max_packet}


class ReasonStrings:
    """The packets with words for one connected client."""

    def __init__(self, version: int, properties: Properties) -> None:
        """`properties` are those of CONNECT."""
        self._version = version
        self._told = version == packets.MQTT_5 and bool(properties.get("request_problem_information", 1))
        self._max_packet: int = properties.get("maximum_packet_size", 268_435_455)

    def acknowledgements(self) -> dict[int, bytes] | None:
        """For `Scanner.texts`."""
        if not self._told:
            return None
        return _acknowledgements(self._max_packet)

    def suback(self, packet_id: int, results: list[int], filters: Sequence[str]) -> bytes:
        """SUBACK for these filters."""
        return self._with(
            lambda properties: packets.encode_suback(self._version, packet_id, results, properties),
            _of_filters(results, filters, 0x80),
        )

    def unsuback(self, packet_id: int, results: list[int], filters: Sequence[str]) -> bytes:
        """UNSUBACK for these filters."""
        return self._with(
            lambda properties: packets.encode_unsuback(self._version, packet_id, results, properties),
            _of_filters(results, filters, 1),
        )

    def disconnect(self, reason: int, why: str, **more: Any) -> bytes:
        """DISCONNECT, with a server reference in `more` perhaps."""
        return self._with(
            lambda properties: packets.encode_disconnect(reason, {**properties, **more}),
            why if reason != reasons.SUCCESS else "",
        )

    def _with(self, encode: Callable[[Properties], bytes], why: str) -> bytes:
        if self._told and why:
            packet = encode({"reason_string": why[:_LONGEST]})
            if len(packet) <= self._max_packet:
                return packet
        return encode({})


def _of_filters(results: list[int], filters: Sequence[str], fault: int) -> str:
    """Why some were not granted, the first few of them; "" when all were."""
    refused = [(topic, code) for topic, code in zip(filters, results, strict=True) if code >= fault]
    said = "; ".join(f"{topic[:80]}: {_FILTERS.get(code, 'refused')}" for topic, code in refused[:3])
    return said + (f"; and {len(refused) - 3} more" if len(refused) > 3 else "")


def refusal(connect: packets.Connect, reason: int, why: str) -> bytes:
    """The CONNACK that refuses; b"" when the client takes no packet of that size, or has no word for it."""
    properties = connect.properties
    most: int = properties.get("maximum_packet_size", 268_435_455)
    if connect.version == packets.MQTT_5 and properties.get("request_problem_information", 1):
        told = packets.encode_connack(connect.version, False, reason, {"reason_string": why[:_LONGEST]})
        if len(told) <= most:
            return told
    plain = packets.encode_refusal(connect.version, reason)
    return plain if len(plain) <= most else b""
