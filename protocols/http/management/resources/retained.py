"""GET /api/retained/{vhost}: the retained messages of MQTT topics, as a list (`lists`).

    ?topic=FILTER   those of a topic filter, without it of all topics but those under $
    {"vhost": V, "name": TOPIC, "size": BYTES, "stored_at": MS, "expires_at": MS | null, "may_clear": true}

The list has topics that the user may read, and at most `TOPICS_MAX`: if its `total_count` is that, there may
be more, which a narrower filter shows. Sizes and times are null if the message has gone while the list was
made. It is cleared as MQTT clients do, by an empty retained message.

GET /api/topics/{vhost}: one level of the tree of topics that have them.

    ?under=a/b      the level below this topic; without it the first one
    {"under": "a/b", "levels": [...], "more": false}
    one of the levels: {"name": "c", "topic": "a/b/c", "retained": true, "below": N,
                        "size": BYTES | null, "stored_at": MS | null, "value": TEXT | null, "is_text": true}

`below` counts the retained topics under it, and `value` is the beginning of the retained message, as text or
in hexadecimal. A request looks at `TOPICS_MAX` topics at most: `more` says that there are others.
"""

from __future__ import annotations

import asyncio
from itertools import chain, islice
from typing import Any, Final

from penstock.log_core.batch._batch import MQTT5
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.lists import reply_list
from penstock.protocols.http.shared.rights import may_read
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import text, wire

__all__ = ["TOPICS_MAX", "VALUE_MAX", "add"]

TOPICS_MAX: Final = 10_000
"""Topics in a list, before it is filtered by name."""
VALUE_MAX: Final = 256
"""Bytes of a retained message that a level shows."""
_AT_ONCE: Final = 500
"""Topics before the loop does something else."""


def add(api: Management) -> None:
    """Serve these paths."""

    async def index(request: Request) -> Response:
        vhost, identity = api.vhost(request), api.identity(request)
        found: list[bytes] = []
        if api.broker.authorizer.allow(identity, vhost.name, "read", MQTT_EXCHANGE):
            walk = vhost.retained.topics(request.parameter("topic") or "#")
            while len(found) < TOPICS_MAX and (some := list(islice(walk, _AT_ONCE))):
                found += [topic for topic in some if may_read(api.broker, identity, vhost, MQTT5, topic)]
                await asyncio.sleep(0)

        def shown(topic: bytes) -> dict[str, Any]:
            message = vhost.retained.get(topic, api.broker.log.now_ms())
            return {
                "vhost": vhost.name,
                "name": text(topic),
                "size": None if message is None else len(message.body),
                "stored_at": None if message is None else message.stored_ms,
                "expires_at": (message.expires_ms or None) if message is not None else None,
                "may_clear": not topic.startswith(b"$") and vhost.publishing.may(identity, MQTT5, topic),
            }

        return await reply_list(request, found[:TOPICS_MAX], shown, lambda topic: (vhost.name, text(topic)))

    async def level(request: Request) -> Response:
        vhost, identity = api.vhost(request), api.identity(request)
        under = request.parameter("under")
        if "+" in under or "#" in under:
            raise HttpError(400, "bad_request", "under: a topic, without + and #")
        prefix = wire(f"{under}/") if under else b""
        levels: dict[bytes, list[int]] = {}
        looked = 0
        if api.broker.authorizer.allow(identity, vhost.name, "read", MQTT_EXCHANGE):
            walk = chain(
                vhost.retained.topics(f"{under}/+" if under else "+"),
                vhost.retained.topics(f"{under}/+/+/#" if under else "+/+/#"),
            )
            while looked < TOPICS_MAX and (some := list(islice(walk, _AT_ONCE))):
                looked += len(some)
                for topic in some:
                    if may_read(api.broker, identity, vhost, MQTT5, topic):
                        name, deeper, _ = topic[len(prefix) :].partition(b"/")
                        found = levels.setdefault(name, [0, 0])
                        found[bool(deeper)] += 1
                await asyncio.sleep(0)
        now_ms = api.broker.log.now_ms()
        shown = []
        for name, (retained, below) in sorted(levels.items()):
            topic = prefix + name
            message = vhost.retained.get(topic, now_ms) if retained else None
            shown.append({"name": text(name), "topic": text(topic), "below": below, **_shown(message)})
        return json_response({"under": under, "levels": shown, "more": looked >= TOPICS_MAX})

    api.app.routes.add("GET", "/api/retained/{vhost}", index)
    api.app.routes.add("GET", "/api/topics/{vhost}", level)


def _shown(message: RetainedMessage | None) -> dict[str, Any]:
    if message is None:
        return {"retained": False, "size": None, "stored_at": None, "value": None, "is_text": True}
    value, is_text = _beginning(message.body)
    return {
        "retained": True,
        "size": len(message.body),
        "stored_at": message.stored_ms,
        "value": value,
        "is_text": is_text,
    }


def _beginning(body: bytes) -> tuple[str, bool]:
    """The beginning of a payload, and whether it is text. A letter of UTF-8 may be cut at its end."""
    part = body[:VALUE_MAX]
    for cut in range(min(4, len(part) + 1)):
        try:
            return part[: len(part) - cut].decode("utf-8"), True
        except UnicodeDecodeError:
            if len(body) <= VALUE_MAX:
                break
    return part.hex(" "), False
