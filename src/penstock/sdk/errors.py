"""The errors of a client. Each says what happened and what to do; `code` is the wire's, `retryable` whether
the same may go well later.

PenstockError
└── ClientError
    ├── ConnectionLost      there is no connection, and none could be made
    ├── LoginRefused        user, password or vhost
    ├── BufferFull          more is under way than `buffer_bytes`; nothing was taken
    ├── StaleDelivery       the message is not this consumer's any more: it comes again
    ├── Closed              the client, producer or consumer was closed
    ├── Busy                the subscription has a consumer, and takes no other
    ├── BadBody             a body that is no value of its schema
    ├── WrongContext           called from another event loop, thread or process than the client's
    ├── NoReply             no reply to a request came in time
    ├── Unroutable          no queue and no subscription gets the message, and it is mandatory
    ├── Fenced              a newer producer of the same name has begun
    └── Refused             anything else that the gateway refused; its `code` says what
        ├── NotFound        there is no such topic, queue, exchange or subscription
        ├── AccessRefused   this user may not
        └── Inequivalent    it is there, with other options

`penstock.NAME` has each. Mistakes of the program itself, such as a body that is no bytes, are TypeError and
ValueError.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError

__all__ = [
    "AccessRefused",
    "BadBody",
    "BufferFull",
    "Busy",
    "ClientError",
    "Closed",
    "ConnectionLost",
    "Fenced",
    "Inequivalent",
    "LoginRefused",
    "NoReply",
    "NotFound",
    "Refused",
    "StaleDelivery",
    "Unroutable",
    "WrongContext",
    "from_wire",
    "too_large",
]


class ClientError(PenstockError):
    """The root of what the client raises."""

    code = "client"
    """The event, in a word that does not change: docs/reference/native.md has the gateway's."""
    retryable = False
    """Whether the same may go well later, without a change to the program."""


class ConnectionLost(ClientError):
    """There is no connection. Calls that were under way may have happened or not."""

    code = "connection_lost"
    retryable = True


class LoginRefused(ClientError):
    """The gateway does not let this user in."""

    code = "login_refused"


class BufferFull(ClientError):
    """The producer has as much under way as it may; this message was not taken."""

    code = "buffer_full"
    retryable = True


class StaleDelivery(ClientError):
    """The delivery is void: its connection was lost or its subscription went elsewhere. It comes again."""

    code = "stale_delivery"


class Closed(ClientError):
    """It was closed."""

    code = "closed"


class Busy(ClientError):
    """An exclusive subscription has its consumer."""

    code = "subscription_busy"
    retryable = True


class BadBody(ClientError):
    """The body of a message is no value of its schema."""

    code = "bad_body"


class WrongContext(ClientError):
    """It was called from another event loop, thread or process than the one that its client lives in."""

    code = "elsewhere"


class NoReply(ClientError):
    """No reply to a request came in time. The request may have been handled or not."""

    code = "no_reply"
    retryable = True


class Unroutable(ClientError):
    """No queue and no subscription gets the message, which its producer sends as mandatory."""

    code = "unroutable"


class Fenced(ClientError):
    """A newer producer of this name has begun: this one may not send any more."""

    code = "fenced"


class Refused(ClientError):
    """The gateway refused it; see `code`."""

    code = "refused"


class NotFound(Refused):
    """There is no such topic, queue, exchange or subscription."""

    code = "not_found"


class AccessRefused(Refused):
    """The user has no permission for it."""

    code = "access_refused"


class Inequivalent(Refused):
    """It is there already, and otherwise than it was asked for."""

    code = "inequivalent"


_TOLD = (LoginRefused, Closed, Busy, Fenced, StaleDelivery, NotFound, AccessRefused, Inequivalent)
_KINDS: dict[str, type[ClientError]] = {kind.code: kind for kind in _TOLD}


def from_wire(told: dict[str, Any]) -> ClientError:
    """The error that the gateway told."""
    code = str(told.get("code", "refused"))
    error = _KINDS.get(code, Refused)(str(told.get("message", code)), remedy=str(told.get("remedy", "")))
    error.code = code
    error.retryable = bool(told.get("retryable", False))
    return error


def too_large(size: int, most: int) -> Refused:
    """The message does not fit into a frame."""
    error = Refused(
        f"{size} bytes at once are more than the gateway takes, which is {most}",
        remedy="send less at once, or raise native.max_frame_bytes of the gateway",
    )
    error.code = "too_large"
    return error
