"""The question whether a receiver wants to be sent anything at all.

    OPTIONS <url>                       -> 2xx
    WebHook-Request-Origin: <origin>       WebHook-Allowed-Origin: <origin> or *
                                           WebHook-Allowed-Rate: <requests per minute> or *, optional

or, where a receiver cannot be taught that, by a value that nobody but who gets the request can know:

    POST <url>                                               -> 2xx, with the value:
    {"type": "penstock.webhook.challenge", "webhook": NAME,     VALUE, or {"challenge": VALUE}
     "challenge": VALUE}

So nobody can have this gateway flood a server that never agreed to it.

Source: CloudEvents HTTP webhook 1.0, section 4 (abuse protection); the challenge is our own.
"""

from __future__ import annotations

import hmac

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.client import Answer, Client

__all__ = ["Grant", "ask_origin", "read_challenge"]


@dataclass(frozen=True, slots=True)
class Grant:
    """The receiver's answer."""

    allowed: bool
    reason: str = ""
    """Why it does not allow it."""
    pace_s: float = 0.0
    """Least time from one request to the next; 0: it does not mind."""


async def ask_origin(client: Client, origin: str, timeout_s: float) -> Grant:
    """Ask by OPTIONS. Raises NoAnswer."""
    answer = await client.send("OPTIONS", {"webhook-request-origin": origin}, timeout_s=timeout_s)
    if not 200 <= answer.status < 300:
        return Grant(False, f"OPTIONS was answered with {answer.status}")
    allowed = answer.headers.get("webhook-allowed-origin", "").strip()
    if allowed not in (origin, "*"):
        said = f"allows {allowed[:100]!r}" if allowed else "has no WebHook-Allowed-Origin"
        return Grant(False, f"the answer to OPTIONS {said}, and not {origin!r}")
    rate = answer.headers.get("webhook-allowed-rate", "").strip()
    per_minute = int(rate) if rate.isascii() and rate.isdigit() and len(rate) < 9 else 0
    return Grant(True, pace_s=60 / per_minute if per_minute else 0.0)


def read_challenge(answer: Answer, value: str) -> Grant:
    """Whether the answer to a challenge has its value."""
    if not 200 <= answer.status < 300:
        return Grant(False, f"the challenge was answered with {answer.status}")
    said: object = answer.body.strip()
    if answer.body.lstrip()[:1] in (b"{", b'"'):
        try:
            said = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            said = b""
        if isinstance(said, dict):
            said = said.get("challenge")
        said = said.encode("utf-8", "surrogatepass") if isinstance(said, str) else b""
    assert isinstance(said, bytes)
    if not hmac.compare_digest(said, value.encode()):
        return Grant(False, "the answer to the challenge has not its value: answer with it, as text or JSON")
    return Grant(True)
