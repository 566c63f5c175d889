"""The login of a page at an issuer of tokens (OAuth 2, authorization code with PKCE).

    GET /sign-in/oauth            302 to the issuer
    GET /sign-in/oauth/done       302 to the console, with the cookie of a session (`sessions`)

Both are links that a browser follows, not calls of a script. Between them the browser has a cookie for ten
minutes that no script reads: the state that the issuer must send back, and the secret behind the code. When
there is no login, the page is told why in its address: `#/sign-in/WHY`.

    refused      the issuer or its user said no
    unknown      the browser comes from no login that began here, or it took too long
    unanswered   the issuer gave no token for the code
    no-right     the token logs in nobody, or a user without a tag
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.sessions import begin_session
from penstock.protocols.http.server.login import cookie_name, cookie_of
from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.protocols.login.code_flow import CodeFlow

__all__ = ["PATH", "add", "is_open"]

logger: Final = logging.getLogger("penstock.http")

PATH: Final = "/sign-in/oauth"
_COOKIE: Final = "-oauth"
"""Behind the name of the session's cookie."""
_LIFE_S: Final = 600


def add(api: Management) -> None:
    """Serve these paths, where the configuration has a client at the issuer."""
    if api.code_flow is not None:
        handlers = _Logins(api, api.code_flow)
        api.app.routes.add("GET", PATH, handlers.begin)
        api.app.routes.add("GET", f"{PATH}/done", handlers.done)


def is_open(request: Request) -> bool:
    """Whether it is about a login, which needs none."""
    return list(request.segments[:2]) == ["sign-in", "oauth"]


class _Logins:
    def __init__(self, api: Management, flow: CodeFlow) -> None:
        self._api = api
        self._flow = flow

    async def begin(self, request: Request) -> Response:
        """Send the browser to the issuer."""
        login = self._flow.begin(self._redirect_uri(request))
        return _go(login.url, (self._cookie(request, f"{login.state}.{login.verifier}", _LIFE_S),))

    async def done(self, request: Request) -> Response:
        """The browser comes back."""
        state, _, verifier = (cookie_of(request, cookie_name(request) + _COOKIE) or "").partition(".")
        gone = self._cookie(request, "", 0)

        def failed(why: str) -> Response:
            return _go(f"/#/sign-in/{why}", (gone,))

        if not verifier or not secrets.compare_digest(state, request.parameter("state")):
            return failed("unknown")
        code = request.parameter("code")
        if not code:
            return failed("refused")
        users = self._api.broker.users
        try:
            token = await self._flow.token(code, verifier, self._redirect_uri(request))
            with users.attempt("http", request.peer_host):
                request.identity = await users.authenticate(
                    "", token.encode(), request.local, peer=request.peer_host
                )
            cookie = await begin_session(self._api, request, secure=self._secure(request))
        except (AuthenticationRefused, HttpError):
            return failed("no-right")
        except PenstockError as error:
            logger.warning("a login at the issuer of tokens failed: %s", error)
            return failed("unanswered")
        return _go("/", (gone, *cookie))

    def _base(self, request: Request) -> str:
        """Where the browser sees the console. A proxy may have ended TLS, and only the configuration says so:
        a header of the request may be anybody's."""
        scheme = "https" if request.secure else "http"
        return self._flow.options.console_url.rstrip("/") or f"{scheme}://{request.headers.get('host', '')}"

    def _redirect_uri(self, request: Request) -> str:
        return f"{self._base(request)}{PATH}/done"

    def _secure(self, request: Request) -> bool:
        return self._base(request).startswith("https:")

    def _cookie(self, request: Request, value: str, life_s: int) -> tuple[str, str]:
        # Lax: the browser comes back from a page of the issuer.
        text = f"{cookie_name(request)}{_COOKIE}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Lax"
        return "set-cookie", text + ("; Secure" if self._secure(request) else "")


def _go(url: str, cookies: tuple[tuple[str, str], ...]) -> Response:
    headers = [("location", url), ("cache-control", "no-store"), ("referrer-policy", "no-referrer")]
    return Response(302, headers=[*headers, *(one for one in cookies if one[0] == "set-cookie")])
