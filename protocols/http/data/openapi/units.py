"""The OpenAPI document (`openapi`) of transactions, producers, half and delayed
messages."""

from __future__ import annotations

from penstock.protocols.http.data.openapi.schemas import NAME, TEXT, Json, object_, publish_to, ref, wholes
from penstock.protocols.http.data.openapi.words import HANDLES, operation, query
from penstock.protocols.http.data.publishing.delayed import COUNTED, ID_PATTERN
from penstock.protocols.http.data.publishing.half import NUMBERS
from penstock.protocols.http.data.publishing.transactions import TIMEOUT_MS
from penstock.router.messages.delayed_listing import LOOKED_AT

__all__ = ["numbers", "txn", "units"]


def txn() -> Json:
    """The parameter of what is staged."""
    return query("txn", {"type": "string", "minLength": 1}, "Staged in this transaction.")


def numbers() -> list[Json]:
    """The headers of a producer that numbers its messages."""
    whole = {"type": "string", "pattern": "^[0-9]{1,9}$"}
    return [
        {"name": name, "in": "header", "schema": schema, "description": text}
        for name, schema, text in (
            (
                "Penstock-Producer",
                {"type": "string", "pattern": "^[!-~]{1,255}$"},
                "Who numbers messages.",
            ),
            ("Penstock-Epoch", whole, "As POST producers gave it."),
            ("Penstock-Sequence", whole, "The number of the first message, of which there is one at least."),
        )
    ]


def units(key: Json) -> Json:
    """The paths. `key`: the parameter Idempotency-Key."""
    name = {"type": "string", "minLength": 1, "maxLength": 255}
    one = "/transactions/{transaction}"
    handles = {**HANDLES, "description": "As a pull gave them, each once."}
    acks = {
        "oneOf": [
            object_({"queue": TEXT, "handles": handles}, "queue", "handles", closed=True),
            object_(
                {"stream": TEXT, "subscription": TEXT, "handles": handles},
                "stream",
                "subscription",
                "handles",
                closed=True,
            ),
        ]
    }
    publish = {"oneOf": [publish_to(to) for to in ("queue", "stream", "exchange")]}
    at_once = object_(
        {
            "publish": {"type": "array", "maxItems": 1000, "items": publish},
            "ack": {"type": "array", "items": acks},
        },
        closed=True,
    )
    # One that does something at once has one of them at least.
    at_once["anyOf"] = [{"required": ["publish"]}, {"required": ["ack"]}]
    opened = object_({"timeout_ms": TIMEOUT_MS.schema()}, closed=True)
    staged = {
        "id": TEXT,
        "messages": {"type": "integer"},
        "handles": {"type": "integer"},
        "bytes": {"type": "integer"},
        "left_ms": {"type": "integer"},
    }
    shown = {
        "id": TEXT,
        "due_at": {"type": "integer", "description": "Milliseconds since 1970."},
        "scheduled_at": {"type": "integer"},
        "size": {"type": "integer", "description": "Bytes of its payload."},
        "protocol": {"enum": ["amqp", "mqtt"]},
        "exchange": TEXT,
        "routing_key": TEXT,
        "may_cancel": {"type": "boolean", "description": "Whether the user may cancel it."},
    }
    waiting = object_({**shown, "topic": {**TEXT, "description": "Of MQTT."}}, *shown)
    hour = object_(
        {
            "at": {"type": "integer", "description": "Its beginning; milliseconds since 1970."},
            "messages": {"type": "integer"},
        },
        *("at", "messages"),
    )
    most = {"type": "integer", "minimum": 1, "maximum": LOOKED_AT, "default": 100}
    return {
        "/transactions": {
            "post": operation(
                "Publish and acknowledge as one atomic unit, at once or by opening a transaction.",
                {200: ref("Results"), 201: object_({"id": TEXT, "timeout_ms": {"type": "integer"}}, "id")},
                body={"anyOf": [at_once, opened]},
                optional=True,
                parameters=[{**key, "description": "Only beside publish or ack, which happen once then."}],
            )
        },
        one: {"get": operation("What is staged.", {200: object_(staged, *staged)})},
        f"{one}/commit": {"post": operation("All that is staged happens.", {200: ref("Results")})},
        f"{one}/rollback": {"post": operation("Nothing of it does.", {200: object_({})})},
        "/producers": {
            "post": operation(
                "Begin to number messages: an epoch that fences off all before it.",
                {
                    201: object_(
                        {"name": TEXT, "epoch": {"type": "integer"}, "next_sequence": {"type": "integer"}},
                        "name",
                        "epoch",
                        "next_sequence",
                    )
                },
                body=object_({"name": name}, closed=True),
                optional=True,
            )
        },
        "/half": {
            "post": operation(
                "Keep a message until it is committed or rolled back.",
                {201: object_({"name": TEXT}, "name")},
                body={"oneOf": [_half(to) for to in ("queue", "stream", "exchange")]},
            )
        },
        "/half/{half}": {
            "get": operation(
                "What is undecided.",
                {
                    200: object_(
                        {"name": TEXT, "checks": {"type": "integer"}, "prepared_ms": {"type": "integer"}}
                    )
                },
            )
        },
        "/exchanges/{exchange}/delayed/{delayed}": {
            "delete": operation(
                "Have the message of this name, which waits for its time, never come.", {204: None}
            )
        },
        "/delayed": {
            "get": operation(
                "Messages that wait for their time, the first due first.",
                {200: object_({"messages": {"type": "array", "items": waiting}, "cursor": TEXT}, "messages")},
                parameters=[
                    query("max", most, "Messages to look at, those of other vhosts included."),
                    query(
                        "cursor", {"type": "string", "pattern": ID_PATTERN}, "As the answer before had it."
                    ),
                ],
            )
        },
        "/delayed/{waiting}": {
            "delete": operation("Have a message that waits for its time never come.", {204: None})
        },
        "/delayed/{waiting}/send": {
            "post": operation("Have a message that waits for its time come now.", {204: None})
        },
        "/delayed-hours": {
            "get": operation(
                f"How many are due in each hour, of the first {COUNTED} of all virtual hosts.",
                {200: object_({"hours": {"type": "array", "items": hour}, "cursor": TEXT}, "hours")},
            )
        },
        "/half/{half}/commit": {"post": operation("Publish it.", {200: object_({"id": TEXT}, "id")})},
        "/half/{half}/rollback": {"post": operation("Forget it.", {200: object_({})})},
    }


def _half(to: str) -> Json:
    """The prepared message, for a queue, a stream or an exchange."""
    return object_(
        {
            to: TEXT,
            "message": publish_to(later=False),
            "name": {"type": "string", "minLength": 1, "maxLength": 255},
            "ask": {"type": "string", "format": "uri", "maxLength": 2048},
            **wholes(NUMBERS),
            "dead_letter": NAME,
        },
        to,
        "message",
        closed=True,
    )
