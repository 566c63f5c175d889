"""GET /api/retained/{vhost}: the retained messages of MQTT topics, as a list (`lists`).

    ?topic=FILTER   those of a topic filter, without it of all topics but those under $
    {"vhost": V, "name": TOPIC, "size": BYTES, "stored_at": MS, "expires_at": MS | null, "may_clear": true}

The list has topics that the user may read, and at most `TOPICS_MAX`: if its `total_count` is that, there may
be more, which a narrower filter shows. Sizes and times are null if the message has gone while the list was
made. It is cleared as MQTT clients do, by an empty retained message.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, Final

from penstock.log_core.batch._batch import MQTT5
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import reply_list
from penstock.protocols.http.shared.rights import may_read
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.names import text

__all__ = ["TOPICS_MAX", "add"]

TOPICS_MAX: Final = 10_000
"""Topics in a list, before it is filtered by name."""
_AT_ONCE: Final = 500
"""Topics before the loop does something else."""


def add(api: Management) -> None:
    """Serve this path."""

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

    api.app.routes.add("GET", "/api/retained/{vhost}", index)
