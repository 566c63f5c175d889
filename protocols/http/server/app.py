"""Shared by the listeners of the HTTP front end: routes, and how refusals are answered.

Under /api errors look like RabbitMQ's management API, everywhere else they are problems (RFC 9457):

    {"error": "bad_request", "reason": ...}
    {"type": "/problems/<code>", "title": ..., "status": ..., "detail": ..., "code": ..., "retryable": ...}

A refusal of the broker has the text that AMQP clients get (`ErrorTexts`), as in RabbitMQ, whose
management API is an AMQP client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from penstock.errors import LogError, PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.routes import Routes
from penstock.protocols.http.server.wire.h1 import REASONS
from penstock.protocols.net.admitting.browser import is_from_page
from penstock.router import errors as router

__all__ = ["NO_TAG", "ErrorTexts", "HttpApp"]

_REALM: Final = 'Basic realm="RabbitMQ Management"'
NO_TAG: Final = "Not management user"
"""RabbitMQ's reason for a user without any tag for the API."""
_ELSEWHERE: Final = "the management API is not at this address, but at that of management.listen"
_RABBIT_ERRORS: Final = {
    400: "bad_request",
    401: "not_authorised",
    403: "not_authorised",
    404: "Object Not Found",
    405: "method_not_allowed",
    413: "bad_request",
    415: "unsupported_media_type",
    503: "unavailable",
}


class Refusal(Protocol):
    """A refusal in AMQP's words."""

    @property
    def code(self) -> int: ...
    @property
    def reply_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ErrorTexts:
    """The functions that the HTTP front end borrows from AMQP; the composition root hands it over."""

    refusal: Callable[[PenstockError], Refusal]
    """The reply code and text for an error of the broker."""
    encode_properties: Callable[[dict[str, Any]], bytes]
    """The properties block of a message, from its properties by name."""
    decode_properties: Callable[[bytes], Mapping[str, Any]]
    key_of_mqtt: Callable[[bytes, bytes, int], tuple[bytes, bytes]]
    """(topic, block, flags) of an MQTT message -> (key block, properties block)."""


class HttpApp:
    """See the module. `needs_no_login` says which requests are served without one."""

    def __init__(self, words: ErrorTexts, *, needs_no_login: Callable[[Request], bool] | None = None) -> None:
        self.routes = Routes()
        self.words = words
        self._open = needs_no_login

    def is_open(self, request: Request) -> bool:
        return self._open is not None and self._open(request)

    def translate(self, error: PenstockError) -> HttpError:
        """The status for a refusal of the broker, and AMQP's text for it."""
        if isinstance(error, router.AuthenticationRefused):
            if error.reason == "busy":
                return HttpError(503, "busy", "too many logins at once; try again", retry_after_s=1)
            if error.reason == "limit":
                return HttpError(429, "too_many_logins", f"{error.message}", retry_after_s=6)
            return HttpError(401, "not_authorized", "Login failed")
        text = self.told(error)
        match error:
            case router.AccessRefused() | router.SystemExchange():
                return HttpError(403, "access_refused", text)
            case router.NotFound():
                return HttpError(404, "not_found", text)
            case router.Inequivalent():
                return HttpError(409, "inequivalent", text)
            case LogError():
                return HttpError(503, "log_failed", text)
        return HttpError(400, "bad_request", text)

    def told(self, error: PenstockError) -> str:
        """AMQP's text for a refusal, without the name of its code."""
        text = self.words.refusal(error).reply_text or str(error)
        name, dash, rest = text.partition(" - ")
        return rest if dash and name.isupper() else text

    def problem(self, request: Request | None, error: HttpError) -> Response:
        if request is not None and (request.target + "/").startswith("/api/"):
            return self._rabbit(request, error)
        headers = list(error.headers)
        if error.status == 401:
            headers.append(("www-authenticate", _challenge(request, 'Basic realm="penstock"')))
        body: dict[str, Any] = {
            "type": f"/problems/{error.code}",
            "title": REASONS.get(error.status, "Error"),
            "status": error.status,
            "detail": error.detail,
            "code": error.code,
            "retryable": error.retry_after_s is not None,
            **error.more,
        }
        if error.retry_after_s is not None:
            body["retry_after_ms"] = error.retry_after_s * 1000
        return json_response(body, error.status, headers, "application/problem+json")

    def _rabbit(self, request: Request, error: HttpError) -> Response:
        headers = list(error.headers)
        status, name, reason = error.status, _RABBIT_ERRORS.get(error.status, error.code), error.detail
        if error.code == "not_authorized":
            # A login that failed, and only that, asks for another one.
            headers.append(("www-authenticate", _challenge(request, _REALM)))
            name = "not_authorized"
        elif error.code == "cross_site":
            name = error.code
        elif status == 403:
            # RabbitMQ answers 401 to what the user may not do, too.
            status = 401
            reason = reason if reason == NO_TAG else "Access refused."
        elif status == 409:
            status, name = 400, "bad_request"
        elif error.code == "not_found" and status == 404:
            if reason.startswith("there is nothing"):
                reason = "Not Found" if self.routes.begin_with("api") else _ELSEWHERE
            else:
                name = "not_found"
        elif error.code in ("page_out_of_range", "invalid_pagination_parameters"):
            name = error.code
        elif error.code == "not_json":
            reason = "not_json"
        return json_response({"error": name, "reason": reason}, status, headers)


def _challenge(request: Request | None, realm: str) -> str:
    """The challenge of a 401: a page gets no challenge that makes its browser show a password dialog."""
    return 'Bearer realm="penstock"' if request is not None and is_from_page(request.headers) else realm
