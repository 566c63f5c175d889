"""Sessions in definitions: whose they are, how long they stay without a connection, and their subscriptions.

    {"client_id": C, "user": U, "expiry_s": N,
     "subscriptions": [{"filter": F, "qos": 0 | 1 | 2, "no_local": false, "retain_as_published": false,
                        "retain_handling": 0, "identifier": 0}]}

Only those that outlive their connection. Those of a login by token are not among them: what it allowed ends
with the token. Messages and packet ids are no definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.protocols.listening.definitions import Item
from penstock.protocols.mqtt.clients.clients import Client, Clients
from penstock.protocols.mqtt.codec.packets import Filter
from penstock.protocols.mqtt.codec.reasons import MqttError
from penstock.protocols.mqtt.delivery.subscribing import restore
from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.errors import AccessRefused, InvalidParameter
from penstock.router.vhost.vhost import Vhost

__all__ = ["SessionDefinitions"]

_EXPIRY_MAX_S: Final = 2**32 - 1
_IDENTIFIER_MAX: Final = 268_435_455
_CLIENT_ID_BYTES_MAX: Final = 65_535


class SessionDefinitions:
    """The part `mqtt_sessions`."""

    def __init__(self, clients: Clients, options: MqttOptions) -> None:
        self._clients = clients
        self._options = options

    def export(self, vhost: Vhost) -> Iterator[Item]:
        """Those of a vhost, by client id."""
        for client_id in sorted(vhost.sessions.client_ids()):
            client = self._clients.find(vhost.name, client_id)
            if client is None or not client.persistent or client.grants is not None:
                continue
            yield {
                "client_id": client_id,
                "user": client.username,
                "expiry_s": client.expiry_s,
                "subscriptions": _subscriptions(client),
            }
            if client.connection is None:
                client.rest()

    def load(self, vhost: Vhost, item: Item) -> int:
        """Make a session without a connection; one that is there stays as it is.

        Raises:
            AccessRefused: its user may not read what it subscribes to.
            InvalidParameter: the item is none, or its user may not use the vhost.

        """
        client_id = _text(item, "client_id")
        if not 0 < len(client_id.encode()) <= _CLIENT_ID_BYTES_MAX:
            raise InvalidParameter(f"client_id has 1 to {_CLIENT_ID_BYTES_MAX} bytes")
        expiry_s = _number(item, "expiry_s", 1, _EXPIRY_MAX_S)
        lines = _lines(item)
        broker = self._clients.broker
        identity = broker.users.identity(_text(item, "user"))
        if identity is None:
            raise InvalidParameter(f"there is no user '{item['user']}'")
        if not broker.authorizer.enter(identity, vhost.name):
            raise InvalidParameter(f"user '{identity.username}' may not use vhost '{vhost.name}'")
        if self._clients.find(vhost.name, client_id) is not None:
            return 0
        with broker.log.unit():
            client = self._clients.create(vhost, client_id, identity, expiry_s)
            try:
                lsn = restore(self._clients, self._options, client, lines)
            except (MqttError, AccessRefused) as error:
                self._clients.end(client)
                if isinstance(error, MqttError):
                    raise InvalidParameter(error.message) from error
                raise
            return max(lsn, self._clients.put_away(client))


def _subscriptions(client: Client) -> list[Item]:
    return [
        {
            "filter": one.topic,
            "qos": one.qos,
            "no_local": one.no_local,
            "retain_as_published": one.terms.retain_as_published,
            "retain_handling": one.retain_handling,
            "identifier": one.identifier,
        }
        for _, one in sorted(client.subscriptions.items())
    ]


def _lines(item: Item) -> list[tuple[Filter, int]]:
    found = item.get("subscriptions", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InvalidParameter("subscriptions is a list of objects")
    return [
        (
            Filter(
                _text(one, "filter"),
                _number(one, "qos", 0, 2),
                _flag(one, "no_local"),
                _flag(one, "retain_as_published"),
                _number(one, "retain_handling", 0, 2, 0),
            ),
            _number(one, "identifier", 0, _IDENTIFIER_MAX, 0),
        )
        for one in found
    ]


def _text(item: Item, name: str) -> str:
    value: Any = item.get(name)
    if not isinstance(value, str):
        raise InvalidParameter(f"{name} is a string")
    return value


def _flag(item: Item, name: str) -> bool:
    value: Any = item.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} is true or false")
    return value


def _number(item: Item, name: str, least: int, most: int, default: int | None = None) -> int:
    value: Any = item.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidParameter(f"{name} is a number from {least} to {most}")
    return value
