"""Random programs of AMQP's methods.

A program is a list of steps. A step is a dict that says all there is to it, so that a program can be
printed and run again: `do`, a channel (0 or 1), and arguments. Names of queues and exchanges are "{p}q0" and
so on, with the program's own prefix for {p}. Programs have no step whose outcome depends on time.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

__all__ = ["EXCHANGES", "QUEUES", "Step", "program"]

Step = dict[str, Any]

QUEUES: Final = ("q0", "q1", "q2")
EXCHANGES: Final = ("x0", "x1", "x2")
_KEYS: Final = ("a", "b", "a.b")


def program(random: Random, steps: int) -> list[Step]:
    """A program of some declares and `steps` more steps."""
    made = [_exchange(random, name) for name in EXCHANGES[: random.randint(1, 3)]]
    made += [_queue(random, name) for name in QUEUES[: random.randint(1, 3)]]
    made += [_bind(random) for _ in range(random.randint(1, 4))]
    if random.random() < 0.3:
        made.append(
            {
                "do": "qos",
                "on": random.randrange(2),
                "count": random.randint(1, 3),
                "all": random.random() < 0.3,
            }
        )
    mode = random.choice(["", "", "", "tx", "confirm"])
    if mode:
        made.append({"do": f"{mode}.select", "on": 0})
    choices, weights = zip(*_STEPS.items(), strict=True)
    made += [choice(random) for choice in random.choices(choices, weights, k=steps)]
    if mode == "tx":
        # A commit that a queue refuses does nothing here; RabbitMQ keeps the rest.
        for step in made:
            step.get("arguments", {}).pop("x-overflow", None)
    return [step for step in made if _is_comparable(step, made)]


def _is_comparable(step: Step, steps: list[Step]) -> bool:
    """Whether both brokers promise the same of it; docs/reference/amqp.md lists where they do not."""
    if step["do"] == "publish" and "BCC" in step["properties"].get("headers", {}):
        # RabbitMQ routes a dead letter without a key of its own by keys that nobody can see any more.
        declared = [one["arguments"] for one in steps if one["do"] == "queue.declare"]
        if any("x-dead-letter-exchange" in one for one in declared):
            return False
    if step["do"] == "publish" and step["properties"].get("expiration") == "0":
        # Some look at all that comes, and drop what has expired at once, not at the head only. Of a message
        # that leaves for two reasons, each broker names another one.
        declared = [one["arguments"] for one in steps if one["do"] == "queue.declare"]
        return not any(
            one.keys() & {"x-max-priority", "x-max-length-bytes", "x-max-length"} for one in declared
        )
    if any(one["do"] == "tx.select" for one in steps) and steps.index(step) > 8:
        # Messages of a transaction are routed at its commit.
        return not step["do"].endswith((".declare", ".delete", "bind"))
    return True


def _exchange(random: Random, name: str) -> Step:
    arguments: dict[str, Any] = {}
    if random.random() < 0.25:
        arguments["alternate-exchange"] = "{p}" + random.choice(EXCHANGES)
    return {
        "do": "exchange.declare",
        "on": random.randrange(2),
        "exchange": "{p}" + name,
        "type": random.choice(["direct", "fanout", "topic", "headers"]),
        "auto_delete": random.random() < 0.15,
        "internal": random.random() < 0.08,
        "durable": random.random() < 0.5,
        "arguments": arguments,
    }


def _queue(random: Random, name: str) -> Step:
    arguments: dict[str, Any] = {}
    if random.random() < 0.3:
        arguments["x-dead-letter-exchange"] = random.choice(["", "{p}x0", "{p}x1", "{p}x2"])
        if random.random() < 0.6:
            arguments["x-dead-letter-routing-key"] = random.choice(["{p}q0", "{p}q1", "a"])
    if random.random() < 0.15:
        arguments["x-message-ttl"] = random.choice([0, 600_000])
    if random.random() < 0.25:
        arguments["x-max-length"] = random.randint(0, 3)
        if random.random() < 0.5:
            arguments["x-overflow"] = random.choice(["drop-head", "reject-publish", "reject-publish-dlx"])
    if random.random() < 0.1:
        arguments["x-max-length-bytes"] = random.randint(0, 12)
    if arguments.keys() & {"x-max-length", "x-max-length-bytes"} and arguments.get("x-message-ttl") == 0:
        # Of a message that leaves for two reasons each broker names another one.
        del arguments["x-message-ttl"]
    if random.random() < 0.15:
        arguments["x-max-priority"] = random.randint(1, 5)
    if random.random() < 0.1:
        arguments["x-single-active-consumer"] = True
    return {
        "do": "queue.declare",
        "on": random.randrange(2),
        "queue": "{p}" + name,
        "durable": random.random() < 0.5,
        "exclusive": random.random() < 0.1,
        "auto_delete": random.random() < 0.1,
        "arguments": arguments,
    }


def _bind(random: Random) -> Step:
    to_exchange = random.random() < 0.3
    arguments: dict[str, Any] = {}
    if random.random() < 0.3:
        arguments = {"x-match": random.choice(["all", "any"]), "h": random.choice([1, "1", True])}
    return {
        "do": random.choice(["bind", "bind", "bind", "unbind"]),
        "on": random.randrange(2),
        "to": "{p}" + random.choice(EXCHANGES if to_exchange else QUEUES),
        "to_exchange": to_exchange,
        "exchange": random.choice(["{p}x0", "{p}x1", "{p}x2", "{p}x0", ""]),
        "key": random.choice([*_KEYS, "a.*", "#", "*", ""]),
        "arguments": arguments,
    }


def _publish(random: Random) -> Step:
    properties: dict[str, Any] = {"delivery_mode": random.choice([1, 2])}
    headers: dict[str, Any] = {}
    if random.random() < 0.2:
        properties["expiration"] = random.choice(["0", "600000", "0", "x"])
    if random.random() < 0.3:
        properties["priority"] = random.randint(0, 6)
    if random.random() < 0.2:
        headers[random.choice(["CC", "BCC"])] = random.sample(
            [*_KEYS, "{p}q0", "{p}q1"], random.randint(1, 2)
        )
    if random.random() < 0.3:
        headers["h"] = random.choice([1, "1", True])
    if headers:
        properties["headers"] = headers
    to_queue = random.random() < 0.5
    return {
        "do": "publish",
        "on": random.randrange(2),
        "exchange": "" if to_queue else "{p}" + random.choice(EXCHANGES),
        "key": "{p}" + random.choice(QUEUES) if to_queue else random.choice(_KEYS),
        "mandatory": random.random() < 0.3,
        "properties": properties,
        "body": "m" * random.randint(0, 6),
    }


def _get(random: Random) -> Step:
    return {
        "do": "get",
        "on": random.randrange(2),
        "queue": _a_queue(random),
        "no_ack": random.random() < 0.4,
    }


def _consume(random: Random) -> Step:
    arguments = {"x-priority": random.randint(-1, 2)} if random.random() < 0.3 else {}
    return {
        "do": "consume",
        "on": random.randrange(2),
        "queue": _a_queue(random),
        "tag": "c" + str(random.randrange(3)),
        "no_ack": random.random() < 0.3,
        "exclusive": random.random() < 0.1,
        "arguments": arguments,
    }


def _settle(random: Random) -> Step:
    return {
        "do": random.choice(["ack", "ack", "nack", "reject"]),
        "on": random.randrange(2),
        "which": random.randrange(4),
        "multiple": random.random() < 0.3,
        "requeue": random.random() < 0.5,
    }


def _a_queue(random: Random) -> str:
    return "{p}" + random.choice(QUEUES)


def _cancel(random: Random) -> Step:
    return {"do": "cancel", "on": random.randrange(2), "tag": "c" + str(random.randrange(3))}


def _purge(random: Random) -> Step:
    return {"do": "purge", "on": random.randrange(2), "queue": _a_queue(random)}


def _delete_queue(random: Random) -> Step:
    conditions = {"if_unused": random.random() < 0.4, "if_empty": random.random() < 0.4}
    return {"do": "queue.delete", "on": random.randrange(2), "queue": _a_queue(random), **conditions}


def _delete_exchange(random: Random) -> Step:
    name = "{p}" + random.choice(EXCHANGES)
    return {
        "do": "exchange.delete",
        "on": random.randrange(2),
        "exchange": name,
        "if_unused": random.random() < 0.4,
    }


def _recover(random: Random) -> Step:
    return {"do": "recover", "on": random.randrange(2)}


def _transaction(random: Random) -> Step:
    return {"do": random.choice(["tx.commit", "tx.commit", "tx.rollback"]), "on": 0}


def _declare_queue(random: Random) -> Step:
    return _queue(random, random.choice(QUEUES))


def _declare_exchange(random: Random) -> Step:
    return _exchange(random, random.choice(EXCHANGES))


def _reopen(random: Random) -> Step:
    return {"do": "reopen", "on": random.randrange(2)}


_STEPS: Final = {
    _publish: 40,
    _get: 14,
    _settle: 16,
    _consume: 7,
    _cancel: 3,
    _bind: 7,
    _purge: 1,
    _delete_queue: 2,
    _delete_exchange: 1,
    _recover: 2,
    _transaction: 6,
    _declare_queue: 2,
    _declare_exchange: 1,
    _reopen: 1,
}
