"""Requests to the receiver of one webhook: signed, with what it proves itself by.

Owns the connections to the receiver and to the server of its tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.protocols.http.server.messages import dumps
from penstock.protocols.http.webhooks.address_rules import Forbidden, Guard, Target
from penstock.protocols.http.webhooks.client import Answer, Client, NoAnswer
from penstock.protocols.http.webhooks.security.access_token import AccessToken
from penstock.protocols.http.webhooks.security.auth import Auth, BadCertificate, with_certificate
from penstock.protocols.http.webhooks.security.handshake import Grant, ask_origin, read_challenge
from penstock.protocols.http.webhooks.security.signing import signature

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.belongings import Context
    from penstock.protocols.http.webhooks.store import Webhook

__all__ = ["NoSender", "Sender"]


class Sender:
    """See the module."""

    def __init__(self, context: Context, webhook: Webhook) -> None:
        """Raises Forbidden, BadCertificate, and OSError when `webhooks.ca_file` cannot be read."""
        self._context = context
        self._webhook = webhook
        settings = webhook.settings
        guard, auth = context.guard, settings.auth
        self._timeout_s = settings.timeout_ms / 1000
        self._fixed = {"user-agent": f"penstock/{__version__}", **settings.headers, **auth.headers()}
        target = _target(guard, "url", settings.url)
        certified = auth if auth.type == "mtls" else None
        self._client = _client(context, target, certified)
        self._token: AccessToken | None = None
        if auth.type == "oauth2-client-credentials":
            endpoint = _target(guard, "auth.token_url", auth.values["token_url"])
            self._token = AccessToken(auth, _client(context, endpoint), self._timeout_s)

    def close(self) -> None:
        """Close what is idle, forget the token; it can send again."""
        self._client.close()
        if self._token is not None:
            self._token.close()

    async def send(self, headers: Mapping[str, str], body: bytes, name: str, attempt: int) -> Answer:
        """Send one request, whose id is `name`; a token that is refused is fetched anew, once.

        Raises:
            NoAnswer: there is none in time, no token, or the target may not be reached.

        """
        timestamp = self._context.broker.log.wall_ms() // 1000
        sent = {
            **headers,
            "webhook-id": name,
            "webhook-timestamp": str(timestamp),
            "penstock-attempt": str(attempt),
            **self._fixed,
        }
        if keys := self._secrets():
            sent["webhook-signature"] = signature(keys, name, timestamp, body)
        if self._token is None:
            return await self._post(sent, body)
        token = await self._token.get()
        answer = await self._post({**sent, "authorization": f"Bearer {token}"}, body)
        if answer.status != 401:
            return answer
        self._token.refused(token)
        return await self._post({**sent, "authorization": f"Bearer {await self._token.get()}"}, body)

    async def _post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        return await self._client.send(
            self._webhook.settings.method, headers, body, timeout_s=self._timeout_s
        )

    async def ask(self) -> Grant:
        """Ask the receiver whether it wants to be sent anything, as `verify` says. Raises NoAnswer."""
        if self._webhook.settings.verify == "options":
            return await ask_origin(self._client, self._context.origin, self._timeout_s)
        value = secrets.token_urlsafe(32)
        body = dumps(
            {"type": "penstock.webhook.challenge", "webhook": self._webhook.name, "challenge": value}
        )
        answer = await self.send({"content-type": "application/json"}, body, "challenge", 1)
        return read_challenge(answer, value)

    def _secrets(self) -> list[str]:
        webhook = self._webhook
        if webhook.retire_ms and self._context.broker.log.wall_ms() >= webhook.retire_ms:
            webhook.secrets, webhook.retire_ms = webhook.secrets[:1], 0
            self._context.store.put(webhook)
        return webhook.secrets


class NoSender:
    """In a `Sender`'s place where there can be none: the configuration forbids what was allowed before."""

    def __init__(self, why: str) -> None:
        self._why = why

    def close(self) -> None:
        """Nothing is open."""

    async def send(self, headers: Mapping[str, str], body: bytes, name: str, attempt: int) -> Answer:
        """Raises NoAnswer."""
        raise NoAnswer("broken", self._why)

    async def ask(self) -> Grant:
        """Raises NoAnswer."""
        raise NoAnswer("broken", self._why)


def _target(guard: Guard, field: str, url: str) -> Target:
    try:
        return guard.target(url)
    except Forbidden as error:
        raise Forbidden(f"{field}: {error}") from error


def _client(context: Context, target: Target, certified: Auth | None = None) -> Client:
    tls = None
    if certified is not None:
        if target.scheme != "https":
            raise BadCertificate("auth: mtls needs a url with https://")
        tls = with_certificate(context.new_tls(), certified)
    elif target.scheme == "https":
        tls = context.tls()
    return Client(target, context.guard, tls, resolve=context.resolve)
