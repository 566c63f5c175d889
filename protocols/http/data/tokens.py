"""Tokens over HTTP: made, listed, revoked by their user, or by an administrator.

    POST /v1/tokens {name, ttl_s, user}     GET /v1/tokens?user=     DELETE /v1/tokens/NAME?user=

A token makes no tokens: one that was stolen ends, and no other is left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.login import bearer
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, object_of
from penstock.protocols.http.shared.pages import page
from penstock.router.authentication.tokens import TTL_MAX_S

if TYPE_CHECKING:
    from penstock.router.authentication.tokens import Token

__all__ = ["TokenHandlers"]

TTL_S: Final = Whole(30 * 86_400, 1, TTL_MAX_S)


class TokenHandlers:
    """The handlers."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._tokens = access.broker.tokens

    def _user(self, request: Request, user: Any) -> str:
        """Whose token it is about. Raises HttpError 403: another user's, and not an administrator asks."""
        identity = self._access.identity(request)
        if user in (None, "", identity.username):
            return identity.username
        if "administrator" not in identity.tags or not isinstance(user, str):
            raise HttpError(403, "access_refused", "another user's tokens are for administrators")
        return user

    async def issue(self, request: Request) -> Response:
        """Make one."""
        body = object_of(await request.json())
        check_fields(body, ("name", "ttl_s", "user"))
        if bearer(request.headers.get("authorization", "")) is not None:
            raise HttpError(403, "access_refused", "a token makes no tokens: log in with a password")
        user, ttl_s = self._user(request, body.get("user")), number_of(body, "ttl_s", TTL_S)
        name = body.get("name")
        if not isinstance(name, str):
            raise HttpError(400, "bad_field", "name: a text that says what uses the token")
        text, token, lsn = self._tokens.issue(user, name, ttl_s)
        await self._access.kept(lsn, "fsync")
        return json_response({**_shown(token), "token": text}, 201)

    async def index(self, request: Request) -> Response:
        """Those that are good."""
        user = self._user(request, request.parameter("user"))
        found = ((token.name, token) for token in self._tokens.of(user))
        return page(request, "tokens", found, lambda _, token: _shown(token))

    async def revoke(self, request: Request) -> Response:
        """End one."""
        user = self._user(request, request.parameter("user"))
        await self._access.kept(self._tokens.revoke(user, request.names["token"]), "fsync")
        return Response(204)


def _shown(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "user": token.user,
        "made_at": token.made_ms,
        "expires_at": token.expires_ms,
    }
