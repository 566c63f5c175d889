"""penstock: one partitioned log, spoken to in AMQP, MQTT, HTTP and a native protocol.

Importing the package loads nothing else, so that a part of it (say ``penstock.spark`` on a Spark executor)
can be imported alone. `penstock.connect` and what else the client has are loaded when first asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As typing has it for checkers; loading typing takes longer than all else here."""

if TYPE_CHECKING:
    from penstock.sdk.client import Client, connect
    from penstock.sdk.consuming.consumer import Consumer
    from penstock.sdk.consuming.reader import Reader
    from penstock.sdk.consuming.retrying import Retry
    from penstock.sdk.errors import (
        AccessRefused,
        BadBody,
        BufferFull,
        Busy,
        ClientError,
        Closed,
        ConnectionLost,
        Fenced,
        Inequivalent,
        LoginRefused,
        NoReply,
        NotFound,
        Refused,
        StaleDelivery,
        Unroutable,
        WrongContext,
    )
    from penstock.sdk.message import Message, MessageId
    from penstock.sdk.producing.half import Group, Question
    from penstock.sdk.producing.outbox import sent
    from penstock.sdk.producing.producer import Producer
    from penstock.sdk.schema import Codec, Schema
    from penstock.sdk.tables.table import Table
    from penstock.sdk.tracing import OpenTelemetry

__all__ = [
    "AccessRefused",
    "BadBody",
    "BufferFull",
    "Busy",
    "Client",
    "ClientError",
    "Closed",
    "Codec",
    "ConnectionLost",
    "Consumer",
    "Fenced",
    "Group",
    "Inequivalent",
    "LoginRefused",
    "Message",
    "MessageId",
    "NoReply",
    "NotFound",
    "OpenTelemetry",
    "Producer",
    "Question",
    "Reader",
    "Refused",
    "Retry",
    "Schema",
    "StaleDelivery",
    "Table",
    "Unroutable",
    "WrongContext",
    "__version__",
    "connect",
    "sent",
]
__version__ = "0.2.0"

_MODULES = {
    "Client": "client",
    "connect": "client",
    "Consumer": "consuming.consumer",
    "Group": "producing.half",
    "Message": "message",
    "MessageId": "message",
    "OpenTelemetry": "tracing",
    "Producer": "producing.producer",
    "Question": "producing.half",
    "Reader": "consuming.reader",
    "sent": "producing.outbox",
    "Retry": "consuming.retrying",
    "Codec": "schema",
    "Schema": "schema",
    "Table": "tables.table",
}
"""Where what is not an error is."""


def __dir__() -> list[str]:
    """Names that are imported when they are used count, too, so that a shell can complete them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"penstock.sdk.{_MODULES.get(name, 'errors')}"), name)
