"""Errors on the wire: a code, a sentence, a remedy, and whether trying again may help.

The code of an error of the broker is the name of its class, in lower case with underscores; `_RENAMED` has
those whose class says it otherwise. docs/reference/native.md lists them all.
"""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.errors import LogError, PenstockError, ProtocolError
from penstock.router.errors import AuthenticationRefused

__all__ = ["RequestError", "code_of", "refusal", "unknown_handle", "unread_disk"]

_RENAMED: Final = {
    "ConsumerRefused": "subscription_busy",
    "AuthenticationRefused": "login_refused",
    "QueueGone": "not_found",
    "TopicRefused": "access_refused",
    "ResourceLocked": "locked",
    "ProducerFenced": "fenced",
    "OutOfSequence": "out_of_sequence",
}
_RETRYABLE: Final = frozenset(
    ("subscription_busy", "busy", "limit_reached", "log_failed", "locked", "full", "too_many_halves")
)
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RequestError(ProtocolError):
    """A request or a batch that cannot be served as it is; `code` goes over the wire."""

    def __init__(self, code: str, message: str, *, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code


def unknown_handle(what: str, handle: int) -> RequestError:
    """There is no `what` (a producer, a consumer) with this handle, or no more."""
    return RequestError(
        "unknown_handle",
        f"this connection has no {what} with the handle {handle}",
        remedy="open it first; after a close by either side, open it again",
    )


def unread_disk() -> RequestError:
    """A request asks for records where the disk does not answer."""
    return RequestError(
        "log_failed",
        "the disk could not be read",
        remedy="see the log lines of the gateway, and ask again",
    )


def code_of(error: PenstockError) -> str:
    """The code of an error on the wire."""
    if isinstance(error, RequestError):
        return error.code
    if isinstance(error, AuthenticationRefused) and error.reason in ("busy", "limit"):
        return "busy"
    name = type(error).__name__
    if type(error) is LogError:
        return "log_failed"
    return _RENAMED.get(name) or _WORD.sub("_", name).lower()


def refusal(error: PenstockError) -> dict[str, Any]:
    """The error as the peer is told it."""
    code = code_of(error)
    message, remedy = error.message, error.remedy
    if isinstance(error, AuthenticationRefused):
        # Why exactly is for the log: a peer must not learn which users there are.
        message, remedy = "the login was refused", "correct the user name, the password or the vhost"
    return {"code": code, "message": message, "remedy": remedy, "retryable": code in _RETRYABLE}
