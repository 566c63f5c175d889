"""Policies, limits, deletions: the same on penstock by its management API and on RabbitMQ by rabbitmqctl.

`--broker=rabbitmq` proves that the expectations are RabbitMQ's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAccessDeniedError

from tests.support.brokers import BrokerMissing, Gateway, RabbitMQ
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api


class Operator:
    """The administrator of a broker."""

    def __init__(self, broker: Gateway | RabbitMQ) -> None:
        self.broker = broker
        self.api = Api(broker) if isinstance(broker, Gateway) else None

    def put(self, path: str, body: object, *words: str) -> None:
        """PUT to the API, or the words to rabbitmqctl."""
        if self.api is None:
            assert isinstance(self.broker, RabbitMQ)
            self.broker.ctl(*words)
        else:
            assert self.api.status("PUT", path, body) in (201, 204)

    def delete(self, path: str, *words: str) -> None:
        if self.api is None:
            assert isinstance(self.broker, RabbitMQ)
            self.broker.ctl(*words)
        else:
            assert self.api.status("DELETE", path) == 204

    def policy(
        self, name: str, pattern: str, definition: dict[str, object], *, operator: bool = False
    ) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
        kind, word = ("operator-policies", "set_operator_policy") if operator else ("policies", "set_policy")
        self.put(
            f"{kind}/%2F/{name}", body, word, "--apply-to", "queues", name, pattern, json.dumps(definition)
        )

    def user(self, name: str) -> None:
        """A user whose password is its name, and who may do everything."""
        self.put(f"users/{name}", {"password": name, "tags": ""}, "add_user", name, name)
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        self.put(f"permissions/%2F/{name}", every, "set_permissions", name, ".*", ".*", ".*")

    def connect(self, user: str = "guest", vhost: str = "/") -> BlockingConnection:
        credentials = pika.PlainCredentials(user, user)
        return BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.broker.amqp_port, vhost, credentials=credentials)
        )


@pytest.fixture(scope="module")
def operator(broker_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Administers a broker of this module's own."""
    folder: Path = tmp_path_factory.mktemp("administered")
    make: Callable[[], Gateway | RabbitMQ]
    if broker_name == "rabbitmq":
        make = lambda: RabbitMQ(folder)  # noqa: E731
    else:
        make = lambda: Gateway(folder, settings=SETTINGS)  # noqa: E731
    try:
        broker = make()
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with broker:
        made = Operator(broker)
        yield made
        if made.api is not None:
            made.api.close()


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "policy", "narrowed", "kept", "first"),
    [
        ({"x-max-length": 10}, {"max-length": 3}, None, 3, b"9"),
        ({"x-max-length": 2}, {"max-length": 3}, None, 2, b"10"),
        ({}, {"max-length": 5}, {"max-length": 2}, 2, b"10"),
        ({}, {"max-length": 5}, {"max-length": 8}, 5, b"7"),
        ({"x-overflow": "reject-publish"}, {"max-length": 3, "overflow": "drop-head"}, None, 3, b"0"),
        # A classic queue knows no delivery limit: the policy is not for it, and its max-length neither.
        ({}, {"max-length": 3, "delivery-limit": 5}, None, 12, b"0"),
    ],
)
def test_effective_rules_of_arguments_and_policies(
    operator: Operator,
    unique: str,
    arguments: dict[str, object],
    policy: dict[str, object],
    narrowed: dict[str, object] | None,
    kept: int,
    first: bytes,
) -> None:
    operator.policy(unique, f"^{unique}$", policy)
    if narrowed is not None:
        operator.policy(unique, f"^{unique}$", narrowed, operator=True)
    with operator.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(unique, arguments=arguments)
        for index in range(12):
            channel.basic_publish("", unique, str(index).encode())
        eventually(lambda: channel.queue_declare(unique, passive=True).method.message_count == kept)
        assert channel.basic_get(unique, auto_ack=True)[2] == first


def test_a_policy_holds_for_a_queue_that_is_there_and_ends(operator: Operator, unique: str) -> None:
    with operator.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(unique)
        for index in range(9):
            channel.basic_publish("", unique, str(index).encode())

        def count() -> int:
            ready: int = channel.queue_declare(unique, passive=True).method.message_count
            return ready

        eventually(lambda: count() == 9)
        operator.policy(unique, f"^{unique}$", {"max-length": 4})
        eventually(lambda: count() == 4)
        operator.delete(f"policies/%2F/{unique}", "clear_policy", unique)
        for index in range(3):
            channel.basic_publish("", unique, str(index).encode())
        eventually(lambda: count() == 7)


def test_a_vhost_has_its_number_of_connections_and_queues(operator: Operator, unique: str) -> None:
    operator.put(f"vhosts/{unique}", {}, "add_vhost", unique)
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    words = ("set_permissions", "-p", unique, "guest", ".*", ".*", ".*")
    operator.put(f"permissions/{unique}/guest", every, *words)
    for name, value in (("max-connections", 1), ("max-queues", 1)):
        limits = json.dumps({"max-connections": 1, "max-queues": 1})
        operator.put(
            f"vhost-limits/{unique}/{name}", {"value": value}, "set_vhost_limits", "-p", unique, limits
        )
    connection = operator.connect(vhost=unique)
    refused = f"access to vhost '{unique}' refused for user 'guest': connection limit (1) is reached"
    with pytest.raises(ProbableAccessDeniedError) as denied:
        operator.connect(vhost=unique)
    assert refused in str(denied.value).replace("\\'", "'")
    channel = connection.channel()
    channel.queue_declare("q")
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare("r")
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        f"PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost '{unique}' (1) is reached",
    )
    operator.delete(f"vhosts/{quote(unique)}", "delete_vhost", unique)
    assert gone(connection) == (320, f"CONNECTION_FORCED - vhost '{unique}' is deleted")


def test_a_user_has_its_number_of_channels_and_is_closed_when_it_is_deleted(
    operator: Operator, unique: str
) -> None:
    operator.user(unique)
    limit = ("set_user_limits", unique, json.dumps({"max-channels": 2}))
    operator.put(f"user-limits/{unique}/max-channels", {"value": 2}, *limit)
    connection = operator.connect(unique)
    connection.channel()
    connection.channel()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.channel()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        530,
        f"NOT_ALLOWED - number of channels opened for user '{unique}' has reached the maximum allowed user "
        "limit of (2)",
    )
    connection = operator.connect(unique)
    operator.delete(f"users/{unique}", "delete_user", unique)
    assert gone(connection) == (320, f"CONNECTION_FORCED - user '{unique}' is deleted")


def gone(connection: BlockingConnection) -> tuple[int, str]:
    """Why the broker closed the connection."""
    with pytest.raises(ConnectionClosedByBroker) as closed:
        for _ in range(100):
            connection.process_data_events(time_limit=0.1)
    with suppress(pika.exceptions.ConnectionWrongStateError):
        connection.close()
    return closed.value.reply_code, closed.value.reply_text
