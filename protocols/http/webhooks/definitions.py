"""Webhooks in definitions: their settings, whose they are, and their secrets, as the log's tables have them.

With `webhooks.key_file` the secrets and the values of headers are sealed, and who imports them needs the same
key; without it they are readable, as the log's tables are. How far messages have got is no definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from penstock.errors import ConfigError
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.webhooks.store import Webhook
from penstock.protocols.listening.definitions import Item

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.security.secrets import Seal
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.router.vhost.vhost import Vhost

__all__ = ["WebhookDefinitions"]


class WebhookDefinitions:
    """The part `webhooks`."""

    def __init__(self, webhooks: Webhooks, seal: Seal | None) -> None:
        self._webhooks = webhooks
        self._seal = seal

    def export(self, vhost: Vhost) -> Iterator[Item]:
        """Those of a vhost, by name."""
        for worker in self._webhooks.of(vhost):
            item: Item = orjson.loads(worker.webhook.encoded(self._seal))
            del item["vhost"]
            yield item

    def load(self, vhost: Vhost, item: Item) -> int:
        """Make one; one that is there stays as it is.

        Raises:
            HttpError: it cannot be so, or its secrets are sealed with another key.
            RoutingError: its source is not there, or its user may not read it.

        """
        try:
            row = orjson.dumps({**item, "vhost": vhost.name})
            webhook = Webhook.decoded(row, self._seal)
        except (TypeError, KeyError, AttributeError) as error:
            raise HttpError(400, "bad_field", f"no webhook: {error}") from error
        except ConfigError as error:
            raise HttpError(400, "bad_field", str(error)) from error
        if any(worker.webhook.name == webhook.name for worker in self._webhooks.of(vhost)):
            return 0
        return self._webhooks.adopt(vhost, webhook)
