"""Shared subscriptions by hash with real clients as members and publishers, over a kill -9 of the gateway."""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.mosquitto_clients import command, received, subscriber
from tests.support.node_programs import mqtt_js
from tests.support.node_programs import packages as packages

pytestmark = [
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="apt-get install mosquitto-clients"),
]

TOPICS = 24
ROUNDS = 5


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    strategies = "topics=hash-topic,publishers=hash-clientid"
    with Gateway(tmp_path, settings={"mqtt.shared_strategy_of": strategies}) as made:
        yield made


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_topic_has_one_member_among_clients_of_all_kinds(gateway: Gateway, qos: int) -> None:
    port, topic = gateway.mqtt_port, "$share/topics/t/#"
    with (
        connected(port, "five", version=5) as five,
        connected(port, "four", version=4) as four,
        mqtt_js(port, topic) as js,
        subscriber(port, "mqttv5", "-q", str(qos), "-t", topic, "-F", "%p") as mosquitto,
        connected(port, version=5) as publisher,
    ):
        for client in (five, four):
            client.subscribe(topic, qos)
        for i in range(TOPICS * ROUNDS):
            publisher.publish(f"t/{i % TOPICS}", str(i).encode(), qos)
        came: queue.Queue[tuple[str, int]] = queue.Queue()
        readers = [
            threading.Thread(target=read, args=(name, next_line, came), daemon=True)
            for name, next_line in (
                ("five", lambda: five.next().payload),
                ("four", lambda: four.next().payload),
                ("js", js.stdout.readline if js.stdout is not None else str),
                ("mosquitto", lambda: received(mosquitto, 1)[0]),
            )
        ]
        for reader in readers:
            reader.start()
        got: dict[str, list[int]] = {}
        for _ in range(TOPICS * ROUNDS):
            name, number = came.get(timeout=LIMIT_S)
            got.setdefault(name, []).append(number)
    assert sorted(n for numbers in got.values() for n in numbers) == list(range(TOPICS * ROUNDS))
    owner = {n % TOPICS: name for name, numbers in got.items() for n in numbers}
    assert len(set(owner.values())) > 1
    for each in range(TOPICS):
        mine = {name: [n for n in numbers if n % TOPICS == each] for name, numbers in got.items()}
        assert mine.pop(owner[each]) == list(range(each, TOPICS * ROUNDS, TOPICS))
        assert not any(mine.values())


def read(name: str, next_line: Callable[[], str | bytes], came: queue.Queue[tuple[str, int]]) -> None:
    """Until the client is ended."""
    with suppress(queue.Empty, ValueError, AssertionError, OSError):
        while line := next_line():
            came.put((name, int(line)))


@pytest.mark.parametrize("group", ["topics", "publishers"])
def test_the_members_keep_what_is_theirs_over_a_kill_of_the_gateway(gateway: Gateway, group: str) -> None:
    """Publishers are mosquitto_pub: a new connection and session each time, and one client id."""

    def publish(first: int) -> None:
        for i in range(6):
            words = ["-i", f"p{i}", "-q", "1", "-t", f"t/{i}", "-l"]
            lines = "".join(f"{i} {n}\n" for n in range(first, first + 4))
            subprocess.run(
                command("pub", gateway.mqtt_port, "mqttv5", *words), input=lines, text=True, check=True
            )

    def take(members: list[Client], first: int) -> list[set[int]]:
        """The keys of each member in a round. Messages from before a kill may come again, to any member."""
        numbers: dict[int, list[int]] = {}
        owners: list[set[int]] = [set() for _ in members]
        while sum(map(len, numbers.values())) < 24:
            for owner, member in zip(owners, members, strict=True):
                while not member.messages.empty():
                    key, number = map(int, member.next().payload.split())
                    if number < first:
                        continue
                    numbers.setdefault(key, []).append(number)
                    owner.add(key)
        assert all(each == sorted(each) for each in numbers.values())
        assert sum(map(len, owners)) == 6, "a key has one owner"
        return owners

    with ExitStack() as stack:
        members = [
            stack.enter_context(connected(gateway.mqtt_port, f"m{i}", version=5, clean=False, expiry_s=600))
            for i in range(3)
        ]
        for member in members:
            assert member.subscribe(f"$share/{group}/t/#", 1) == 1
        publish(0)
        before = take(members, 0)
        gateway.kill9()
        for member in members:
            member.disconnects.get(timeout=LIMIT_S)
            member.end()
        gateway.start()
        for member in members:
            member.connect()
            assert member.session_present
        publish(4)
        assert take(members, 4) == before
        # One of them leaves: its keys, and no others, are somebody else's.
        leaver = next(i for i, owned in enumerate(before) if owned)
        members[leaver].unsubscribe(f"$share/{group}/t/#")
        publish(8)
        after = take(members, 8)
        assert after[leaver] == set()
        assert all(before[i] <= after[i] for i in range(3) if i != leaver)
