"""The way in of one MQTT connection: CONNECT, the login or the authentication by AUTH, until CONNACK.

`_lifecycle` has the ordinary way; here is the rest of it. `Session` goes on from there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.protocols.detection import hint
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.reason_strings import refusal
from penstock.protocols.mqtt.codec.reasons import ConnectRefused, MqttError, Violation
from penstock.protocols.mqtt.session._lifecycle import SessionLifecycle
from penstock.protocols.mqtt.session.authenticating import METHOD, Authentication
from penstock.protocols.mqtt.session.state import State
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.properties import Properties

__all__ = ["Opening"]

_PRE_CONNECT_BYTES: Final = 65536
"""The largest CONNECT: what a peer may make us hold before it is logged in."""


class Opening(SessionLifecycle):
    """`Session` before it is open, where its CONNECT is not ordinary."""

    @property
    def _closed(self) -> bool:
        return self.state is State.CLOSED

    def _receive_connect(self, data: bytearray, size: int) -> int:
        if self.state not in (State.NEW, State.AUTH):
            return 0 if self.state is State.LOGIN else size
        head = _read_head(data, size)
        if head is None:
            return 0
        kind, flags, start, stop = head
        if self.state is State.AUTH:
            return self._receive_auth(data, size, head)
        if kind != packets.CONNECT or start < 0 or stop > _PRE_CONNECT_BYTES:
            # mqtt5:3.1.0-1: close, no bytes
            self._end(f"the first packet was not CONNECT{_hint(data, size)}")
            return size
        if stop > size:
            self.want = stop
            return 0
        try:
            connect = packets.decode_connect(bytes(data[start:stop]), flags)
            self.version, self.bridge = connect.version, connect.bridge
        except ConnectRefused as refused:
            self._host.out.write(refused.connack)
            # The first byte of TLS is that of a CONNECT with flags; it has none.
            self._end(f"CONNECT refused: {refused.message}{_hint(data, size) if flags else ''}")
            return size
        return self._connected_by(connect, data, size, stop)

    def _begin_authentication(self, connect: packets.Connect) -> None:
        if connect.properties["authentication_method"] != METHOD:
            self.refused(reasons.BAD_AUTHENTICATION_METHOD, "an unknown authentication method")
            return
        self._authentication = Authentication(self._host.scram())
        self._authenticate(connect.properties)

    def _receive_auth(self, data: bytearray, size: int, head: tuple[int, int, int, int]) -> int:
        """The client goes on with an authentication that its CONNECT began."""
        kind, flags, start, stop = head
        if kind != packets.AUTH or start < 0 or stop > _PRE_CONNECT_BYTES:
            self._end("another packet than AUTH in an authentication")  # mqtt5:3.1.2-30
            return size
        if stop > size:
            self.want = stop
            return 0
        self.state = State.LOGIN
        try:
            reason, properties = packets.decode_auth(bytes(memoryview(data)[start:stop]), flags)
            if reason != reasons.CONTINUE_AUTHENTICATION:
                raise Violation("an authentication that does not go on")
        except MqttError as error:
            self.refused(error.reason, error.message)
        else:
            self._authenticate(properties)
        return size if self._closed else stop

    def _authenticate(self, properties: Properties) -> None:
        """One step before CONNACK, when its turn has come."""
        assert self._authentication is not None
        try:
            wait_s = self._authentication.turn()
        except AuthenticationRefused as error:
            self.refused(reasons.SERVER_BUSY, error.message)
            return
        if wait_s > 0:
            self._host.pause(wait_s, partial(self._step, properties))
        else:
            self._step(properties)

    def _step(self, properties: Properties) -> None:
        authentication, connect = self._authentication, self._connect
        assert authentication is not None and connect is not None
        try:
            answer = authentication.step(properties)
        except MqttError as error:
            self.refused(error.reason, error.message)
        except AuthenticationRefused as error:
            self.refused(reasons.BAD_USER_NAME_OR_PASSWORD, error.message)
        else:
            if authentication.identity is None:
                self.state = State.AUTH
                self._host.out.write(answer)
                self._host.dirty()
                return
            self._authentication = None
            connect.user_name = authentication.name
            self._authenticated = authentication.answer
            self.logged_in(authentication.identity)

    def refused(self, reason: int, why: str) -> None:
        """The login was wrong. Called by the host after `login`."""
        if self.state is State.LOGIN:
            # A client that cannot log in is not told whether it was the name or the password.
            secret = reason in (reasons.BAD_USER_NAME_OR_PASSWORD, reasons.NOT_AUTHORIZED)
            if secret or self._connect is None:
                self._host.out.write(packets.encode_refusal(self.version, reason))
            else:
                self._host.out.write(refusal(self._connect, reason, why))
            self._end(f"CONNECT refused: {why}")

    @property
    def connect(self) -> packets.Connect | None:
        """The CONNECT of the client, while its login is verified."""
        return self._connect


def _hint(data: bytearray, size: int) -> str:
    return hint(bytes(memoryview(data)[: min(size, 64)]))


def _read_head(data: bytearray, size: int) -> tuple[int, int, int, int] | None:
    """(type, flags, start, stop) of the first packet; None = not there yet; start < 0: no packet."""
    value = 0
    for i in range(1, 5):
        if i >= size:
            return None if size < 5 else (0, 0, -1, 0)
        value |= (data[i] & 0x7F) << 7 * (i - 1)
        if data[i] < 0x80:
            minimal = data[i] or i == 1
            return data[0] >> 4, data[0] & 15, i + 1 if minimal else -1, i + 1 + value
    return 0, 0, -1, 0
