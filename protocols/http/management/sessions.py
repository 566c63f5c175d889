"""/api/login: a page begins a session and ends it; RabbitMQ's own page uses this path.

    POST /api/login     {"username": ..., "password": ...}, JSON or a form; 200 with whoami, and the cookie;
                        a form is answered with "user" and "token", too, as RabbitMQ 4.3 does
    DELETE /api/login   204; the session is over, and the cookie gone

A login is judged, limited and audited as one by Basic. A form with `access_token` logs in by a token of
OAuth 2; so does a password that is one. The cookie is out of the reach of scripts (HttpOnly) and is sent by
pages of the gateway only (SameSite=Strict). It has no time of its own: the browser forgets it when it closes.
The token is what the form had, as the header Authorization has it: RabbitMQ's page sends it from then on.
"""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import parse_qsl

from penstock.protocols.http.management.bodies import Body, Text
from penstock.protocols.http.management.context import Management, text_of
from penstock.protocols.http.server.login import cookie_name, session_of
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response, parsed

__all__ = ["LOGIN", "add", "begin_session", "is_open"]

LOGIN: Final = Body({"username": Text(), "password": Text()}, "username", "password")

_BODY_MAX: Final = 16 << 10
_FIELDS_MAX: Final = 10
_PATH: Final = "/api/login"


def add(api: Management) -> None:
    """Serve this path."""
    handlers = _Sessions(api)
    api.app.routes.add("POST", _PATH, handlers.begin)
    api.app.routes.add("DELETE", _PATH, handlers.end)


def is_open(request: Request) -> bool:
    """Whether it is about a login, which needs none."""
    return list(request.segments) == ["api", "login"]


class _Sessions:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def begin(self, request: Request) -> Response:
        """Log in, and take the place of the session that the page had."""
        users = self._api.broker.users
        username, password = await _login(request)
        with users.attempt("http", request.peer_host):
            request.identity = await users.authenticate(
                username, password.encode("utf-8", "surrogateescape"), request.local, peer=request.peer_host
            )
        cookie = await begin_session(self._api, request)
        shown = self._api.whoami(request)
        if _is_form(request):
            shown = {**shown, "user": shown, "token": _token(username, password)}
        return json_response(shown, headers=cookie)

    async def end(self, request: Request) -> Response:
        """Log out; without a session there is nothing to do."""
        session = session_of(request)
        if session is not None:
            await self._api.kept(self._api.broker.web_sessions.end(session))
        return Response(204, headers=_cookie(request, ""))


async def begin_session(api: Management, request: Request, *, secure: bool = False) -> list[tuple[str, str]]:
    """A session of the user of a request, instead of the one that the page had: the headers with its cookie.
    `secure`: the browser came by TLS, whatever the request says.

    Raises:
        HttpError: 403, the user has no tag for the console; 503.

    """
    identity, sessions = api.person(request), api.broker.web_sessions
    before = session_of(request)
    if before is not None:
        sessions.end(before)
    session, lsn = sessions.begin(identity)
    await api.kept(lsn)
    return _cookie(request, session, secure=secure)


def _is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/x-www-form-urlencoded"


def _token(username: str, password: str) -> dict[str, str]:
    """The credentials that a page sends in the header Authorization, behind the scheme."""
    if not username:
        return {"type": "bearer", "value": password}
    login = f"{username}:{password}".encode("utf-8", "surrogateescape")
    return {"type": "basic", "value": base64.b64encode(login).decode()}


async def _login(request: Request) -> tuple[str, str]:
    """The user name and password in the body. Raises HttpError 400."""
    body = await request.body(_BODY_MAX)
    if not _is_form(request):
        fields = LOGIN.read(parsed(body))
        return fields["username"], fields["password"]
    try:
        form = dict(
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
        )
    except ValueError as error:
        raise HttpError(400, "bad_request", "the form cannot be read") from error
    if "access_token" in form:
        return "", form["access_token"]
    return text_of(form, "username"), text_of(form, "password")


def _cookie(request: Request, session: str, *, secure: bool = False) -> list[tuple[str, str]]:
    """The header that sets the cookie; "" takes it away."""
    value = f"{cookie_name(request)}={session}; Path=/; HttpOnly; SameSite=Strict"
    # A proxy may have ended TLS before the gateway; the browser's own word is better.
    if secure or request.secure or request.headers.get("origin", "").startswith("https://"):
        value += "; Secure"
    if not session:
        value += "; Max-Age=0"
    return [("set-cookie", value), ("cache-control", "no-store")]
