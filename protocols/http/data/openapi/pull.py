"""The OpenAPI document (`openapi`) of pulling, streams and subscriptions."""

from __future__ import annotations

from penstock.protocols.http.data import redrive as redrive_handler
from penstock.protocols.http.data import streams as stream_handlers
from penstock.protocols.http.data.openapi.schemas import START, TEXT, Json, object_, ref, wholes
from penstock.protocols.http.data.openapi.units import txn
from penstock.protocols.http.data.openapi.words import HANDLES, listed, operation
from penstock.protocols.http.data.pulling import peek as peek_handler
from penstock.protocols.http.data.pulling.pull import DELAY_MS, LEASE_MS, PULL

__all__ = ["peek", "pulled", "queues", "redrive", "streams"]


def pulled(source: str) -> Json:
    """The source of a pull: a queue or a subscription, whose consumers have names."""
    messages = {"type": "array", "items": ref("Message")}
    pulled = object_({"messages": messages, "active": {"type": "boolean"}}, "messages")
    settled = {200: ref("Settled"), 207: ref("Settled")}
    named = {
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "description": "Who pulls, in at most 255 bytes: needed by subscriptions that are not shared.",
    }
    pull = object_(
        {
            **wholes(PULL),
            **({"consumer": named} if "subscription" in source else {}),
        },
        closed=True,
    )
    nack = object_(
        {
            "handles": HANDLES,
            "dead_letter": {"type": "boolean"},
            **wholes({"delay_ms": DELAY_MS}, delay_ms="Not in a transaction."),
        },
        "handles",
        closed=True,
    )
    nack["not"] = {"required": ["dead_letter", "delay_ms"]}
    return {
        f"{source}/pull": {
            "post": operation("Lease messages, waiting for some.", {200: pulled}, body=pull, optional=True)
        },
        f"{source}/ack": {
            "post": operation(
                "They are done.",
                settled,
                body=object_({"handles": HANDLES}, "handles", closed=True),
                parameters=[txn()],
            )
        },
        f"{source}/nack": {
            "post": operation(
                "They are given back, or dead-lettered.",
                settled,
                body=nack,
                parameters=[txn()],
            )
        },
        f"{source}/extend": {
            "post": operation(
                "They take longer.",
                settled,
                body=object_({"handles": HANDLES, "lease_ms": LEASE_MS.schema()}, "handles", closed=True),
            )
        },
    }


def queues() -> Json:
    """Queues as resources."""
    shown = ref("Queue")
    arguments = {"type": "object", "description": "AMQP's, such as x-max-length."}
    made = object_({"durable": {"type": "boolean", "default": True}, "arguments": arguments}, closed=True)
    return {
        "/queues": {"get": listed("All queues that are no streams.", "queues", shown)},
        "/queues/{queue}": {
            "get": operation("What it has.", {200: shown}),
            "put": operation("Make one.", {200: shown, 201: shown}, body=made, optional=True),
            "delete": operation("End it, with its messages.", {204: None}),
        },
    }


def streams(publish: Json, read: Json, tail: Json) -> Json:
    stream, subscription = "/streams/{stream}", "/streams/{stream}/subscriptions/{subscription}"
    shown, described = ref("Stream"), ref("Subscription")
    options = {
        "kind": {"enum": list(stream_handlers.KINDS), "default": "shared"},
        "start": START,
        "durable": {"type": "boolean", "default": True},
        **wholes(stream_handlers.DELAYS),
        "max_deliveries": stream_handlers.MAX_DELIVERIES.schema(),
        "dead_letter": {"type": "string", "description": "A queue or a stream."},
    }
    return {
        "/streams": {"get": listed("All streams.", "streams", shown)},
        stream: {
            "get": operation("What it has.", {200: shown}),
            "put": operation(
                "Make one.",
                {200: shown, 201: shown},
                body=object_(
                    {
                        "max_age": {
                            "type": "string",
                            "pattern": "^[0-9]{1,9}[YMDhms]$",
                            "description": "Such as 7D.",
                        },
                        "max_bytes": stream_handlers.MAX_BYTES.schema(),
                    },
                    closed=True,
                ),
                optional=True,
            ),
            "delete": operation("End it.", {204: None}),
        },
        f"{stream}/messages": {"post": publish, "get": read},
        f"{stream}/tail": {"get": tail},
        f"{stream}/subscriptions": {"get": listed("Those of a stream.", "subscriptions", described)},
        subscription: {
            "get": operation("Where it stands.", {200: described}),
            "put": operation(
                "Make one.",
                {200: described, 201: described},
                body=object_(options, closed=True),
                optional=True,
            ),
            "delete": operation("End it.", {204: None}),
        },
        **pulled(subscription),
        f"{subscription}/ack-cumulative": {
            "post": operation(
                "It is done, with all before it.",
                {200: object_({"acknowledged": {"type": "integer"}}, "acknowledged")},
                body=object_({"handle": TEXT}, "handle", closed=True),
                parameters=[txn()],
            )
        },
        f"{subscription}/seek": {
            "post": operation(
                "Go on elsewhere.",
                {200: object_({"position": {"type": "integer"}}, "position")},
                body=object_({"to": START}, "to", closed=True),
            )
        },
        f"{subscription}/pause": {
            "post": operation(
                "Nobody gets anything until it is resumed.",
                {200: described},
                body=object_({}, closed=True),
                optional=True,
            )
        },
        f"{subscription}/resume": {
            "post": operation(
                "The end of a pause.", {200: described}, body=object_({}, closed=True), optional=True
            )
        },
    }


def peek() -> Json:
    """Messages that stay where they are."""
    messages = {"type": "array", "items": ref("Message")}
    return operation(
        "Look at messages that are ready, without taking them.",
        {200: object_({"messages": messages}, "messages")},
        body=object_({"max": peek_handler.MOST.schema()}, closed=True),
        optional=True,
    )


def redrive() -> Json:
    """Dead letters that are put back."""
    letter = object_({"id": TEXT, "to": TEXT, "reason": TEXT}, "id", "to", "reason")
    return operation(
        "Put dead letters back to where they died.",
        {
            200: object_(
                {"messages": {"type": "array", "items": letter}, "left": {"type": "integer"}},
                "messages",
                "left",
            )
        },
        body=object_(
            {
                "max": redrive_handler.MOST.schema(),
                "reason": {"enum": list(redrive_handler.REASONS)},
                "to": TEXT,
                "dry_run": {"type": "boolean", "default": False},
                "ids": {
                    "type": "array",
                    "items": {"type": "string", "pattern": "^0:[0-9]{1,19}$"},
                    "minItems": 1,
                    "maxItems": redrive_handler.MOST.most,
                    "description": "Nothing else moves.",
                },
            },
            closed=True,
        ),
        optional=True,
    )
