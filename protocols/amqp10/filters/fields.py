"""Identifiers of selectors, and where in a message their values stand.

| identifier | value |
|---|---|
| `h.priority`, `header.durable` ... | a field of the header; `-` in its name is `_` |
| `p.subject`, `properties.message_id` ... | a field of the properties |
| `a.color`, `application_properties.color`, `color` | an application property |
| `m.[x-opt-a]`, `message_annotations.x` | a message annotation |
| `JMSPriority`, `JMSType` ... | what JMS has by this name |

A name with a dot whose first part is none of these is that of an application property.

Source: RabbitMQ 4.2's SQL filters; JMS 2.0 section 3.4 and AMQP JMS Mapping (working draft) section 3.2.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.filters.errors import SelectorError
from penstock.protocols.amqp10.filters.terms import Looked, Term
from penstock.protocols.amqp10.filters.values import simple
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages.sections import PROPERTY_NAMES

__all__ = ["field_of"]

_HEADER: Final = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_PROPERTIES: Final = tuple(name.replace("-", "_") for name in PROPERTY_NAMES)
_PRIORITY: Final = 4
"""Of a message that has none."""


def field_of(section: str | None, name: str) -> Term:
    """The value of an identifier in a message. Raises SelectorError: the section has no such field."""
    match section:
        case None if name in _JMS:
            return _JMS[name]
        case None | "a" | "application_properties":
            return Term(
                lambda message: simple(message.application_properties.get(name)),
                ("mapped", s.APPLICATION_PROPERTIES, name),
            )
        case "h" | "header":
            return _listed("header", _HEADER, name)
        case "p" | "properties":
            return _listed("properties", _PROPERTIES, name)
        case "m" | "message_annotations":
            return Term(
                lambda message: simple(message.annotations.get(name)), ("mapped", s.ANNOTATIONS, name)
            )
        case "d" | "delivery_annotations" | "f" | "footer":
            raise SelectorError(f"a selector does not see the section of {section}.{name}")
    return field_of("a", f"{section}.{name}")


def _listed(section: str, names: tuple[str, ...], name: str) -> Term:
    if name not in names:
        raise SelectorError(f"the section {section} has no field {name}; its fields are {', '.join(names)}")
    at = names.index(name)
    default = _PRIORITY if name == "priority" else False if name == "durable" else None

    def value(message: Looked) -> Any:
        fields = message.header if section == "header" else message.properties
        found = fields[at] if at < len(fields) else None
        return default if found is None else simple(found)

    return Term(value, ("listed", s.HEADER if section == "header" else s.PROPERTIES, at, default))


def _message_id(message: Looked) -> Any:
    """As JMS writes it."""
    found = message.properties[0] if message.properties else None
    if isinstance(found, UUID):
        return f"ID:AMQP_UUID:{found}"
    return f"ID:AMQP_ULONG:{int(found)}" if type(found) is v.ULong else simple(found)


def _delivery_mode(message: Looked) -> str:
    return "PERSISTENT" if message.header[:1] == [True] else "NON_PERSISTENT"


def _delivery_count(message: Looked) -> int:
    return 1 + int(message.header[4] or 0) if len(message.header) > 4 else 1


_JMS: Final[dict[str, Term]] = {
    "JMSDeliveryMode": Term(_delivery_mode, ("persistent",)),
    "JMSMessageID": Term(_message_id),
    "JMSXDeliveryCount": Term(_delivery_count),
    "JMSPriority": _listed("header", _HEADER, "priority"),
    "JMSCorrelationID": _listed("properties", _PROPERTIES, "correlation_id"),
    "JMSExpiration": _listed("properties", _PROPERTIES, "absolute_expiry_time"),
    "JMSTimestamp": _listed("properties", _PROPERTIES, "creation_time"),
    "JMSType": _listed("properties", _PROPERTIES, "subject"),
    "JMSXGroupID": _listed("properties", _PROPERTIES, "group_id"),
    "JMSXGroupSeq": _listed("properties", _PROPERTIES, "group_sequence"),
    "JMSXUserID": _listed("properties", _PROPERTIES, "user_id"),
}
