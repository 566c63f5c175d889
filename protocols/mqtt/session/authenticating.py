"""Enhanced authentication (mqtt5:4.12): AUTH packets back and forth, by SCRAM-SHA-256.

    client                          gateway
    CONNECT method, first  ->
                           <-       AUTH 0x18, challenge
    AUTH 0x18, proof       ->
                           <-       CONNACK, signature       or AUTH 0x00 when it was AUTH 0x19 that began it

A client may leave its first message to an AUTH of its own. The name in the exchange is a user name as in
CONNECT, with or without a vhost; what CONNECT says beside it does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.reasons import Violation
from penstock.router.authentication.scram import METHOD

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.properties import Properties
    from penstock.router.authentication.users import ScramLogin
    from penstock.router.authorization.identity import Identity

__all__ = ["METHOD", "Authentication"]


class Authentication:
    """One exchange, at CONNECT or later."""

    def __init__(self, login: ScramLogin) -> None:
        self._login = login
        self.answer: Properties = {"authentication_method": METHOD}
        """Properties of the packet that is sent next."""

    @property
    def identity(self) -> Identity | None:
        """The identity, once it is proved."""
        return self._login.identity

    @property
    def name(self) -> str:
        """The user name as the client sent it."""
        return self._login.name

    def turn(self) -> float:
        """Seconds to wait before the next `step`. Raises AuthenticationRefused."""
        return self._login.turn()

    def step(self, properties: Properties) -> bytes:
        """Take what a packet of the client says; the AUTH that goes on, unless `identity` is there now.

        Raises:
            Violation: another method, or no data where it is needed.
            AuthenticationRefused: the login failed.

        """
        if properties.get("authentication_method") != METHOD:
            raise Violation("another authentication method")  # mqtt5:4.12.0-5
        data = properties.get("authentication_data")
        if data is not None:
            self.answer = {"authentication_method": METHOD, "authentication_data": self._login.step(data)}
        elif self._login.name:
            raise Violation("AUTH without data")
        return packets.encode_auth(reasons.CONTINUE_AUTHENTICATION, self.answer)
