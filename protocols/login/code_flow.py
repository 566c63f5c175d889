"""A login at an issuer of tokens, for a web page: the authorization code flow of OAuth 2 with PKCE.

The browser goes to the issuer and comes back with a code, which the gateway exchanges for a token. So no
script sees a token. The gateway is a public client: what it sends with the code is a secret that it made for
this one login, and whose digest went to the issuer before.

Sources: RFC 6749 4.1, RFC 7636 (PKCE, S256), RFC 9700.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import ssl
from typing import Final
from urllib.parse import urlencode

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.login.https import fetch, trusting

__all__ = ["CodeFlow", "CodeFlowOptions", "CodeRefused", "Login"]

_SECRET_BYTES: Final = 32


class CodeRefused(PenstockError):
    """The issuer gave no token for a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFlowOptions:
    """Options of the section `oauth`, with the same keys."""

    issuer: str = ""
    client_id: str = ""
    authorization_url: str = ""
    token_url: str = ""
    console_url: str = ""
    ca_file: str = ""
    scopes: tuple[str, ...] = ("openid",)


@dataclass(frozen=True, slots=True)
class Login:
    """A login that has begun. The browser keeps `state` and `verifier` out of the reach of scripts."""

    url: str
    """Of the issuer, where the browser goes."""
    state: str
    """The issuer sends it back: who comes back is who went."""
    verifier: str


class CodeFlow:
    """See the module."""

    def __init__(self, options: CodeFlowOptions) -> None:
        """Raises ConfigError: the CAs cannot be used."""
        self.options: Final = options
        self._tls: ssl.SSLContext = trusting(options.ca_file)

    def begin(self, redirect_uri: str) -> Login:
        """A new login, after which the browser comes to `redirect_uri`."""
        state, verifier = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.options.client_id,
                "redirect_uri": redirect_uri,
                "scope": " ".join(self.options.scopes),
                "state": state,
                "code_challenge": challenge.decode(),
                "code_challenge_method": "S256",
            }
        )
        url = self.options.authorization_url
        return Login(f"{url}{'&' if '?' in url else '?'}{query}", state, verifier)

    async def token(self, code: str, verifier: str, redirect_uri: str) -> str:
        """The access token for a code.

        Raises:
            CodeRefused: the issuer has none for it, or does not answer.

        """
        form = urlencode(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect_uri,
                "client_id": self.options.client_id,
                "code_verifier": verifier,
            }
        )
        try:
            answer = await asyncio.to_thread(fetch, self.options.token_url, self._tls, form.encode())
            token = json.loads(answer)["access_token"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Not the body: it may have a token.
            raise CodeRefused(
                f"{self.options.token_url} gave no token: {type(error).__name__}",
                remedy="correct oauth.client_id and oauth.token_url, and the redirect address at the issuer",
            ) from error
        if not isinstance(token, str):
            raise CodeRefused(
                f"{self.options.token_url} gave no token", remedy="ask the issuer for access tokens"
            )
        return token
