"""The token by which a webhook with `oauth2-client-credentials` proves itself: fetched, kept, fetched anew.

    POST token_url                                       -> 200 {"access_token": T, "token_type": "Bearer",
    grant_type=client_credentials&scope=...&audience=...         "expires_in": seconds}
    Authorization: Basic base64(client_id:client_secret), or both in the body (`client_auth`)

One token serves all requests of a webhook until shortly before it expires, and is fetched once, however many
requests wait for it. One that a receiver refuses (401) is fetched anew. The endpoint is reached by the rules
of receivers (`guard`), and redirects are not followed.

Source: RFC 6749, 2.3.1, 4.4 and 5; RFC 6750.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import quote_plus, urlencode

import orjson

from penstock.protocols.http.webhooks.client import Answer, Client, NoAnswer
from penstock.protocols.http.webhooks.security.auth import Auth, basic

__all__ = ["AccessToken"]

_MARGIN_S: Final = 60.0
_UNSAID_S: Final = 3600.0
"""How long a token is used whose server does not say how long it may be."""
_LEAST_S: Final = 1.0
"""How long any token is used: one that is said to end at once would be fetched for each request."""
_TOKEN: Final = re.compile(r"[!-~]{1,12288}")
_ERROR: Final = re.compile(r"[a-z_]{1,60}")


class AccessToken:
    """See the module."""

    def __init__(self, auth: Auth, client: Client, timeout_s: float) -> None:
        """`client` is for `token_url`."""
        self._auth = auth
        self._client = client
        self._timeout_s = timeout_s
        self._token = ""
        self._until_s = 0.0
        self._fetching: asyncio.Task[str] | None = None

    async def get(self) -> str:
        """A token that should be good. Raises NoAnswer, of kind `token`: there is none."""
        loop = asyncio.get_running_loop()
        if self._token and loop.time() < self._until_s:
            return self._token
        if self._fetching is None:
            self._fetching = loop.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        # The task serves all who wait: one that is cancelled must not end it for the others.
        return await asyncio.shield(self._fetching)

    def refused(self, token: str) -> None:
        """The receiver did not take this one; a newer one that came meanwhile is kept."""
        if token == self._token:
            self._token = ""

    def close(self) -> None:
        """Forget it; `get` may be called again."""
        self._token = ""
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
        self._client.close()

    def _fetched(self, task: asyncio.Task[str]) -> None:
        if self._fetching is task:
            self._fetching = None
        if not task.cancelled():
            task.exception()  # whoever waits has it

    async def _fetch(self) -> str:
        values = self._auth.values
        form = {"grant_type": "client_credentials"}
        form |= {name: values[name] for name in ("scope", "audience") if values[name]}
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        if values["client_auth"] == "post":
            form |= {"client_id": values["client_id"], "client_secret": values["client_secret"]}
        else:
            # RFC 6749, 2.3.1: both are encoded as in a form before they go into HTTP Basic.
            headers["authorization"] = basic(
                quote_plus(values["client_id"]), quote_plus(values["client_secret"])
            )
        try:
            answer = await self._client.send(
                "POST", headers, urlencode(form).encode(), timeout_s=self._timeout_s
            )
        except NoAnswer as error:
            raise NoAnswer("token", f"no access token: {error.kind}: {error.detail}") from error
        token, lasts_s = _read(answer)
        self._token = token
        self._until_s = asyncio.get_running_loop().time() + lasts_s
        return token


def _read(answer: Answer) -> tuple[str, float]:
    """The token, and how long to use it. Raises NoAnswer."""
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        value = None
    said = value if isinstance(value, dict) else {}
    if answer.status != 200:
        error = said.get("error")
        why = f" ({error})" if isinstance(error, str) and _ERROR.fullmatch(error) else ""
        raise NoAnswer("token", f"no access token: auth.token_url answered {answer.status}{why}")
    token, kind = said.get("access_token"), said.get("token_type", "bearer")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise NoAnswer("token", "no access token: the answer of auth.token_url has none that can be sent")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise NoAnswer("token", "no access token: auth.token_url gives tokens of a type other than Bearer")
    lasts = said.get("expires_in")
    if isinstance(lasts, str) and lasts.isascii() and lasts.isdigit() and len(lasts) < 12:
        lasts = int(lasts)  # some servers send it as text
    if isinstance(lasts, bool) or not isinstance(lasts, int | float) or lasts <= 0:
        return token, _UNSAID_S
    return token, max(lasts - min(_MARGIN_S, lasts / 5), _LEAST_S)
