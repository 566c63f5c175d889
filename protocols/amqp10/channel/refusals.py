"""Every error of the layers below as a condition of AMQP 1.0 with a text."""

from __future__ import annotations

from typing import Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.codec.performatives import Error
from penstock.protocols.headers.errors import HeaderRefused
from penstock.router import errors as router
from penstock.subscriptions import errors as subscriptions

__all__ = ["LinkError", "SessionError", "told"]


class LinkError(Amqp10Error):
    """Detaches the link; outside a session it closes the connection."""

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(message)
        self.condition = condition


class SessionError(LinkError):
    """Ends the session."""


_CONDITIONS: Final[tuple[tuple[type[PenstockError], str], ...]] = (
    (router.NotFound, "amqp:not-found"),
    (router.AccessRefused, "amqp:unauthorized-access"),
    (router.TopicRefused, "amqp:unauthorized-access"),
    (router.AuthenticationRefused, "amqp:unauthorized-access"),
    (router.ResourceLocked, "amqp:resource-locked"),
    (router.LimitReached, "amqp:resource-limit-exceeded"),
    (router.TooManyHalves, "amqp:resource-limit-exceeded"),
    (router.HalfUnknown, "amqp:not-found"),
    (HeaderRefused, "amqp:invalid-field"),
    (subscriptions.ConsumerRefused, "amqp:resource-locked"),
    (subscriptions.QueueGone, "amqp:resource-deleted"),
    (router.RoutingError, "amqp:precondition-failed"),
)
"""The first class that fits decides."""


def told(error: PenstockError) -> Error:
    """The error as the peer gets it."""
    if isinstance(error, Amqp10Error):
        return Error(error.condition, str(error))
    for kind, condition in _CONDITIONS:
        if isinstance(error, kind):
            return Error(condition, str(error))
    return Error("amqp:internal-error", "see the broker logfile")
