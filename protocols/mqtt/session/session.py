"""One MQTT connection: bytes in, bytes out, without I/O.

Its ordinary life is in `_lifecycle`. Three drivers. Bytes: `receive` scans a read; the kernel appends what is
published and settles what is acknowledged, and hands out everything else as events in exact order, which
`Serving` handles. Calls: the log says that positions are durable; what is delivered goes through a
`Delivery`. Time: `deadline` and `handle_deadline` for keep-alive.

    NEW ... (`Opening`) --accepted--> OPENING --CONNACK sent--> OPEN (`Serving`) --> CLOSED

Promises. Everything that is said to be durable is: CONNACK and SUBACK of a session that outlives its
connection wait in `Replies`, acknowledgements of messages in the scanner. A fault ends the connection with
the reason of `reasons` (5.0) or a plain close, and the will is published.

The host (the endpoint, or a test) writes `out` to the peer when told that it is dirty, and calls `lost`
once the connection is gone, for whatever reason.
"""

from __future__ import annotations

from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.reasons import MqttError, Violation
from penstock.protocols.mqtt.delivery.delivery import Delivery
from penstock.protocols.mqtt.session.serving import Serving
from penstock.protocols.mqtt.session.state import State

__all__ = ["Session", "State"]


class Session(Serving):
    """One connection of one client."""

    # Output

    def _delivering(self, client: Client) -> Delivery:
        if self._delivery is not None:
            return self._delivery
        # The first subscription of a client that was taken for one that only publishes.
        self._clients.give_queue(client)
        delivery = self._deliver_to(client, self._connect_properties, 0)
        if self.state is State.OPEN:
            delivery.start()
        return delivery

    # Decisions

    def decided(self) -> None:
        """The host has decided. Then give `receive` what it left."""
        then, self._undecided = self._undecided, None
        scanner = self._scanner
        if then is None or scanner is None or self._closed:
            return
        with self._log.unit():
            try:
                then()
            except MqttError as error:
                self._fail(error)
            self._save()
        if not self._closed:
            self._after_scan()

    # The disk

    def durable(self, ok: bool) -> None:
        """A position that was awaited is reached; not `ok`: the log failed."""
        if self.state is State.CLOSED:
            return
        if not ok:
            self.force_close("the log failed", reasons.UNSPECIFIED)
            return
        self._replies.release()
        self._release()
        if self._delivery is not None:
            self._delivery.release()
        self._host.dirty()

    def writable(self) -> None:
        """There is room for output again."""
        if self._delivery is not None:
            self._delivery.credit_gained()

    def send_again(self) -> None:
        """Messages of a shared subscription under way to this client can be sent again."""
        if self._delivery is not None:
            self._delivery.pump_shared()

    def _send_pubrels(self, packet_ids: list[int]) -> None:
        """The messages of these ids will not be sent again."""
        assert self.client is not None and self._scanner is not None
        self._scanner.push_pubrels(packet_ids)
        self._scanner.stamp(self.client.row_lsn)
        self._await()
        self._release()

    # Time

    def deadline(self) -> float | None:
        """When `handle_deadline` is to be called, on the clock of `receive`; None = never."""
        if self.keep_alive_s and self.state in (State.OPENING, State.OPEN):
            return self._last_input + 1.5 * self.keep_alive_s
        return None

    def handle_deadline(self, now: float) -> None:
        """Close when nothing came for one and a half keep-alive times (mqtt5:3.1.2-22, mqtt311:3.1.2-24)."""
        due = self.deadline()
        if due is not None and due <= now:
            self.force_close("the keep-alive time is over", reasons.KEEP_ALIVE_TIMEOUT)

    def alive(self, now: float) -> None:
        """The connection is not being read, by our own choice: its silence does not count."""
        self._last_input = now

    def spent(self, size: int, now: float) -> float:
        """`receive` took so many bytes: seconds in which nothing more is to be read, because of the rates
        that a client is held to; a 5.0 client is disconnected instead (mqtt5:2.4, 0x96).
        """
        if not self._rates or self._scanner is None or self._closed:
            return 0.0
        published, self._published = self._published, self._scanner.published
        wait_s = max(
            bucket.take(self._published - published if counts else size, now)
            for bucket, counts in self._rates
        )
        if wait_s and self.version == packets.MQTT_5:
            self._fail(Violation("more messages or bytes than the rate", reasons.MESSAGE_RATE_TOO_HIGH))
        return wait_s

    def stop_publishes(self, stop: bool) -> bool:
        """Handle only what is in front of the next PUBLISH, or all again; True: a PUBLISH waits."""
        self._stops_publishes = stop
        scanner = self._scanner
        if scanner is None:
            return False
        scanner.stop_publishes = stop
        return stop and scanner.stopped

    # Endings

    def _cancelled(self, reason: str) -> None:
        """The session is gone: somebody deleted it."""
        if self.state is not State.CLOSED:
            self.force_close(reason)

    # As a member of the vhost

    @property
    def channel_count(self) -> int:
        """MQTT has none."""
        return 0

    def permissions_changed(self) -> None:
        """`Clients` looks after all sessions, connected or not."""

    def subscriptions_changed(self) -> None:
        """Some were taken back."""
        if self._delivery is not None:
            self._delivery.subscribed()

    def shutdown(self) -> None:
        """The gateway stops."""
        why = "the gateway stops"
        if self._options.server_reference:
            reference = self._options.server_reference
            self._say_goodbye(reasons.USE_ANOTHER_SERVER, why, server_reference=reference)
        else:
            self._say_goodbye(reasons.SHUTTING_DOWN, why)
        self._end(why)

    def _fail(self, error: MqttError) -> None:
        """A fault of the peer."""
        self.force_close(error.message, error.reason)

    def _say_goodbye(self, reason: int, why: str, **properties: str) -> None:
        """DISCONNECT, to those who know it and only after CONNACK."""
        if self.version == packets.MQTT_5 and self.state is State.OPEN:
            self._host.out.write(self._words.disconnect(reason, why, **properties))
