"""Requests of web pages, refused where a page of another site could act as the user of its browser. Pure.

A page may not change, follow or read anything at a gateway of another origin. It may link to a page of the
gateway. A page of the gateway itself sends bodies with a type that a form of another page cannot send.

    cross_site               403, the page has another origin
    unsupported_media_type   415, a body of a type that a form can send

See `protocols.net.browser` for the headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.protocols.http.server.messages import HttpError, Request
from penstock.protocols.net.admitting.browser import foreign_page, is_from_page

__all__ = ["check_page"]

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_API: Final = ("/api", "/v1")
_FORM_TYPES: Final = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""The types that a page may send to another origin without being asked first (Fetch, CORS-safelisted)."""
_FORMS: Final = (
    ("multipart/form-data", "/api/definitions"),
    ("application/x-www-form-urlencoded", "/api/login"),
    ("text/plain", "/api/exchanges/"),
    ("text/plain", "/api/queues/"),
)
"""RabbitMQ's management page sends these here, from the same origin: a file, a login, and in 3.10 JSON
that it does not name as such, to publish and to get."""


def check_page(request: Request) -> None:
    """Refuse a request that a page may not make; everything that is not from a page passes.

    Raises:
        HttpError: 403 or 415, see the module text.

    """
    headers = request.headers
    if not is_from_page(headers):
        return
    path = request.target.partition("?")[0]
    if (page := foreign_page(headers)) is not None:
        if not _is_link(request, path):
            raise HttpError(
                403,
                "cross_site",
                f"a page of {page[:100]} may not use this gateway from a browser; open the page that the "
                "gateway serves, or send the request from a program",
            )
        return
    if request.method not in _SAFE and _has_body(headers, request):
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _FORM_TYPES and not any(kind == form and path.startswith(at) for form, at in _FORMS):
            raise HttpError(
                415,
                "unsupported_media_type",
                f"a page sent a body of type {kind[:100] or 'none'}; send Content-Type: application/json",
            )


def _is_link(request: Request, path: str) -> bool:
    """Whether somebody followed a link to a page, as opposed to a request for an API."""
    return (
        request.method in ("GET", "HEAD")
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
        and not any(path == api or path.startswith(api + "/") for api in _API)
    )


def _has_body(headers: Mapping[str, str], request: Request) -> bool:
    length = headers.get("content-length")
    if length is not None:
        return length != "0"
    return "transfer-encoding" in headers or (request.version == "2" and not request.complete)
