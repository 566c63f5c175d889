"""`penstock migrate rabbitmq`: definitions and messages of a real RabbitMQ, there and back, over kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from pamqp import commands

from penstock.cli import main
from penstock.migrate.rabbitmq import shovel
from tests.crash import shovels
from tests.support.amqp_client import Connection
from tests.support.brokers import ROOT, Broker, Gateway, RabbitMQ
from tests.support.data_plane import until
from tests.support.definitions import lost
from tests.support.documented import documented, placed
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("target"), settings=SETTINGS) as running:
        # The port stays over a restart.
        running.settings["management.listen"] = f"127.0.0.1:{running.ports['management']}"
        yield running


def words(rabbitmq: RabbitMQ, gateway: Gateway, *more: str) -> list[str]:
    return [
        *("migrate", "rabbitmq", f"http://guest:guest@127.0.0.1:{rabbitmq.management_port}"),
        *("--url", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}", *more),
    ]


LINES = documented(r"migrate rabbitmq http.*")
"""Those of the pages."""


def of_page(rabbitmq: RabbitMQ, gateway: Gateway, line: list[str], unique: str) -> list[str]:
    """The same words about these brokers, and the queues of a test."""
    verb = words(rabbitmq, gateway)
    return [*verb, *placed(line[3:], {"orders.*": f"{unique}.*"})]


def api(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}/api/", auth=("guest", "guest"), timeout=LIMIT_S)


def connect(broker: Broker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port))


def fill(broker: Broker, queue: str, bodies: range, size: int = 10) -> None:
    """Publish numbers as persistent messages, and wait until all are confirmed."""
    with Connection(broker.amqp_port) as connection:
        channel = connection.channel()
        connection.call(channel, commands.Queue.Declare(queue=queue, durable=True))
        connection.call(channel, commands.Confirm.Select())
        kept = commands.Basic.Properties(delivery_mode=2)
        for number in bodies:
            connection.publish(channel, "", queue, b"%*d" % (size, number), properties=kept)
        confirmed: set[int] = set()
        while len(confirmed) < len(bodies):
            _, ack = connection.read()
            assert isinstance(ack, commands.Basic.Ack)
            confirmed |= set(range(1, ack.delivery_tag + 1)) if ack.multiple else {ack.delivery_tag}


def empty(broker: Broker, queue: str) -> list[int]:
    """The bodies of all messages of a queue, which are taken."""
    bodies: list[int] = []
    with connect(broker) as connection:
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        if count:
            for _, _, body in channel.consume(queue, auto_ack=True):
                bodies.append(int(body))
                if len(bodies) == count:
                    break
    return bodies


def test_its_definitions_are_imported_with_nothing_lost(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    """Declared there with pika and its own API, exported by it, imported by a gateway, compared."""
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        channel.exchange_declare("ex", "topic", durable=True)
        channel.exchange_declare("hd", "headers", durable=True)
        channel.exchange_declare("in", "fanout", durable=True, internal=True)
        channel.exchange_bind("in", "ex", "left out by RabbitMQ")
        channel.queue_declare("plain", durable=True, arguments={"x-max-length": 9})
        channel.queue_declare("q quorum/ü", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("plain", "ex", "a.*.#")
        channel.queue_bind("plain", "ex", "")
        channel.exchange_bind("hd", "ex", "k", arguments={"n": 1, "l": ["x", True]})
    made: dict[str, Any] = {
        "users/shopper": {"password": "shop pass", "tags": "monitoring,custom"},
        "vhosts/two%20words": {},
        "permissions/two%20words/shopper": {"configure": "^s", "write": ".*", "read": ""},
        "policies/%2F/pol": {"pattern": "^p", "definition": {"max-length": 5}, "priority": 2},
    }
    with api(rabbitmq.management_port) as source:
        for path, body in made.items():
            source.put(path, json=body).raise_for_status()
        definitions = source.get("definitions").raise_for_status().json()
        for path in reversed(made):
            source.delete(path).raise_for_status()
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        for exchange in ("ex", "hd", "in"):
            channel.exchange_delete(exchange)
        for queue in ("plain", "q quorum/ü"):
            channel.queue_delete(queue)
    with Gateway(tmp_path / "gateway", settings=SETTINGS) as gateway:
        with api(gateway.ports["management"]) as target:
            assert target.post("definitions", json=definitions).status_code == 204
            exported = target.get("definitions").json()
            # RabbitMQ does not export internal exchanges, so what is bound to one has no end any more.
            definitions["bindings"] = [b for b in definitions["bindings"] if b["destination"] != "in"]
            assert {"ex", "hd"} <= {one["name"] for one in definitions["exchanges"]}
            assert len(definitions["queues"]) == 2 and len(definitions["bindings"]) == 3
            assert lost(definitions, exported) == []
            rights = {"configure": "", "write": ".*", "read": ".*"}
            target.put("permissions/%2F/shopper", json=rights).raise_for_status()
        login = pika.PlainCredentials("shopper", "shop pass")
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, credentials=login)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.basic_publish("ex", "a.b", b"routed", pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("plain", auto_ack=True)[2] == b"routed"


def test_a_dry_run_says_what_differs_and_why(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with api(rabbitmq.management_port) as source, api(gateway.ports["management"]) as target:
        policy = {"pattern": unique, "definition": {"ha-mode": "all", "max-length": 9}, "apply-to": "queues"}
        source.put(f"policies/%2F/{unique}", json=policy).raise_for_status()
        source.put(f"users/{unique}", json={"password": "old", "tags": ""}).raise_for_status()
        arguments = {"x-queue-mode": "lazy"}
        for side in (source, target):
            queue = {"durable": True, "arguments": arguments if side is source else {}}
            side.put(f"queues/%2F/{unique}", json=queue).raise_for_status()
        assert main(words(rabbitmq, gateway, "-o", "json")) == 1  # the queues conflict
        entries = {entry["line"]: entry for entry in json.loads(capsys.readouterr().out)["entries"]}
        mirrors = entries[f"policies: vhost=/ name={unique}: ha-mode"]
        assert mirrors["fate"] == "left out" and "does not mirror" in mirrors["note"]
        assert "costs no memory" in entries[f"queues: name={unique} vhost=/: x-queue-mode"]["note"]
        assert entries[f"users: name={unique}"]["fate"] == "moved"
        conflict = entries[f"queues: vhost=/ name={unique}"]
        assert conflict["fate"] == "wrong" and "differs in arguments" in conflict["note"]
        assert target.get(f"users/{unique}").status_code == 404

        target.delete(f"queues/%2F/{unique}").raise_for_status()
        transient = f"queues/%2F/{unique}.transient"
        source.put(transient, json={"durable": False}).raise_for_status()
        assert main(words(rabbitmq, gateway, "--apply", "--only", "definitions")) == 0
        assert "moved definitions: users " in capsys.readouterr().out
        assert main(words(rabbitmq, gateway)) == 0
        assert "it would be made" not in capsys.readouterr().out
        source.delete(transient), target.delete(transient)
        assert target.get(f"queues/%2F/{unique}").json()["policy"] == unique
        whoami = httpx.get(f"{target.base_url}whoami", auth=(unique, "old"), timeout=LIMIT_S)
        assert whoami.status_code in (200, 401) and whoami.json().get("name", unique) == unique
        source.delete(f"queues/%2F/{unique}")
        source.delete(f"policies/%2F/{unique}")


def test_messages_keep_their_order_and_every_byte_of_their_properties(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str
) -> None:
    # Types that clients do not agree on: int8, int16, uint8, uint32, float, decimal, bytes, void, a table.
    table = b"".join(
        b"\1" + name + value
        for name, value in (
            (b"a", b"b\xff"),
            (b"b", b"s\x80\x00"),
            (b"c", b"B\xff"),
            (b"d", b"i\xff\xff\xff\xff"),
            (b"e", b"f\x3f\xc0\x00\x00"),
            (b"f", b"D\x02\x00\x00\x00\x7b"),
            (b"g", b"x\x00\x00\x00\x02\x00\xff"),
            (b"h", b"V"),
            (b"i", b"F\x00\x00\x00\x04\x01zb\x01"),
            (b"j", b"T\x00\x00\x00\x00\x65\x53\xf1\x00"),
        )
    )
    flags = (1 << 15) | (1 << 13) | (1 << 12) | (1 << 11) | (1 << 4)
    properties = (
        flags.to_bytes(2, "big")
        + b"\x04a/bc"
        + len(table).to_bytes(4, "big")
        + table
        + b"\x02\x05"
        + b"\x05guest"
    )
    bodies = [b"", b"x", b"y" * 300_000]
    with Connection(rabbitmq.amqp_port) as connection:
        channel = connection.channel()
        connection.call(channel, commands.Queue.Declare(queue=unique, durable=True))
        for body in bodies:
            connection.send(channel, commands.Basic.Publish(exchange="", routing_key=unique))
            payload = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
            connection.send_raw(frame(2, payload))
            for at in range(0, len(body), 100_000):
                connection.send_raw(frame(3, body[at : at + 100_000]))
        connection.sync(channel)
    assert main(words(rabbitmq, gateway, "--apply", "--queues", unique)) == 0
    with Connection(gateway.amqp_port) as connection:
        connection.channel()
        for body in bodies:
            connection.send(1, commands.Basic.Get(queue=unique, no_ack=True))
            head, got = raw_message(connection)
            assert head == b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
            assert got == body


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + b"\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"


def raw_message(connection: Connection) -> tuple[bytes, bytes]:
    """The payload of the content header behind a get-ok, and the body."""
    kinds: dict[int, bytes] = {}
    while True:
        head = connection.read_exactly(7)
        payload = connection.read_exactly(int.from_bytes(head[3:], "big") + 1)[:-1]
        kinds[head[0]] = kinds.get(head[0], b"") + payload if head[0] == 3 else payload
        if 2 in kinds and len(kinds.get(3, b"")) == int.from_bytes(kinds[2][4:12], "big"):
            return kinds[2], kinds.get(3, b"")


def test_a_copy_by_the_header_cc_is_not_made_again(rabbitmq: RabbitMQ, gateway: Gateway, unique: str) -> None:
    other = unique + "-copy"
    with connect(rabbitmq) as connection:
        for queue in (unique, other):
            connection.channel().queue_declare(queue, durable=True)
        properties = pika.BasicProperties(headers={"first": "x", "CC": [other], "last": 1})
        connection.channel().basic_publish("", unique, b"1", properties)
        connection.channel().queue_declare(unique, passive=True)
    assert main(words(rabbitmq, gateway, "--apply", "--queues", f"{unique}.*")) == 0
    with connect(gateway) as connection:
        _, properties, _ = connection.channel().basic_get(unique, auto_ack=True)
        assert properties.headers == {"first": "x", "cc": [other], "last": 1}
    assert empty(gateway, other) == [1]


def test_a_move_loses_nothing_when_either_side_is_killed_and_goes_back(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 10_000
    fill(rabbitmq, unique, range(count), size=1000)
    # A kill could lose the queue itself as long as Mnesia has not written it.
    assert "dumped" in rabbitmq.ctl("eval", "mnesia:dump_log().")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = words(rabbitmq, gateway, "--apply", "--queues", unique, "-o", "json")
    moving = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        with api(gateway.ports["management"]) as target:
            until(lambda: target.get(f"queues/%2F/{unique}").json().get("messages", 0) > 0)
        moving.send_signal(signal.SIGSTOP)  # in the middle, however fast it is
        gateway.kill9()
        rabbitmq.kill9()
        moving.send_signal(signal.SIGCONT)
        gateway.start()
        rabbitmq.start()
        said, _ = moving.communicate(timeout=LIMIT_S)
    finally:
        moving.kill()
        moving.wait()
    assert moving.returncode == 0, said
    (result,) = json.loads(said)["queues"]
    assert result["interruptions"] > 0
    assert empty(rabbitmq, unique) == []

    assert (
        main(words(rabbitmq, gateway, "--apply", "--reverse", "--only", "messages", "--queues", unique)) == 0
    )
    assert empty(gateway, unique) == []
    assert list(dict.fromkeys(empty(rabbitmq, unique))) == list(range(count))


def test_the_way_back_says_what_rabbitmq_does_not_know(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with api(gateway.ports["management"]) as target:
        target.put(f"users/{unique}", json={"password": "new", "tags": ""}).raise_for_status()
        target.put(f"queues/%2F/{unique}", json={"durable": True}).raise_for_status()
    assert main(words(rabbitmq, gateway, "--reverse", "-o", "json")) == 0
    entries = {entry["line"]: entry for entry in json.loads(capsys.readouterr().out)["entries"]}
    assert "rabbitmqctl add_user" in entries[f"users: name={unique}"]["note"]
    assert entries[f"queues: vhost=/ name={unique}"]["fate"] == "moved"
    assert main(words(rabbitmq, gateway, "--reverse", "--apply", "--only", "definitions")) == 0
    with api(rabbitmq.management_port) as source:
        assert source.get(f"queues/%2F/{unique}").status_code == 200


def test_a_queue_that_cannot_be_moved_is_said_and_stops_no_other(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, there, full = unique + "a", unique + "b", unique + "c"
    for queue in (missing, there, full):
        fill(rabbitmq, queue, range(3))
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with api(gateway.ports["management"]) as target:
        target.put(f"queues/%2F/{there}", json={"durable": True}).raise_for_status()
        target.put(f"queues/%2F/{full}", json={"durable": True, "arguments": limits}).raise_for_status()
    command = words(rabbitmq, gateway, "--apply", "--only", "messages", "--queues", f"{unique}.")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert f"the target has no queue '{missing}'" in said
    assert f"queue '{full}' of the target refuses messages" in said
    assert empty(gateway, full) + empty(rabbitmq, full) == [0, 1, 2]
    with api(gateway.ports["management"]) as target:
        # Its arguments would be a conflict for the other tests.
        target.delete(f"queues/%2F/{full}").raise_for_status()
    assert empty(gateway, there) == [0, 1, 2]
    assert empty(rabbitmq, missing) == [0, 1, 2]


@pytest.mark.parametrize("line", [line for line in LINES if "--follow" not in line], ids=" ".join)
def test_a_line_of_the_pages_is_a_command(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(of_page(rabbitmq, gateway, line, unique))
    # 1: the queues of other tests are in conflict, which the report says.
    assert code == 0 or (code == 1 and "conflict" in capsys.readouterr().out)


def test_a_move_that_follows_takes_new_messages_until_it_is_told_to_stop(
    rabbitmq: RabbitMQ, gateway: Gateway, unique: str
) -> None:
    unique += ".followed"
    fill(rabbitmq, unique, range(3))
    assert main(words(rabbitmq, gateway, "--apply", "--only", "definitions")) == 0
    (line,) = [line for line in LINES if "--follow" in line]
    command = of_page(rabbitmq, gateway, line, unique.removesuffix(".followed"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    moving = subprocess.Popen([sys.executable, "-m", "penstock", *command], env=environment)
    try:
        with api(gateway.ports["management"]) as target:

            def messages() -> int:
                count: int = target.get(f"queues/%2F/{unique}").json().get("messages", 0)
                return count

            until(lambda: messages() == 3)
            fill(rabbitmq, unique, range(3, 5))
            until(lambda: messages() == 5)
            moving.send_signal(signal.SIGINT)
            assert moving.wait(LIMIT_S) == 130
            assert target.get("users/penstock-migrate").status_code == 404
    finally:
        moving.kill()
        moving.wait()
    assert empty(gateway, unique) == list(range(5))
    # The last two may have been confirmed and not acknowledged: the next run repeats these.
    assert empty(rabbitmq, unique) in ([], [4], [3, 4])


def test_a_queue_whose_messages_another_consumer_gets_is_said(
    rabbitmq: RabbitMQ,
    gateway: Gateway,
    unique: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shovel, "_STARVED_S", 0.5)
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        channel.queue_declare(unique, durable=True, arguments={"x-single-active-consumer": True})
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(unique, lambda *_: None)
        for body in (b"1", b"2"):
            channel.basic_publish("", unique, body)
        assert main(words(rabbitmq, gateway, "--apply", "--queues", unique)) == 1
    assert "stop its single active or exclusive consumer" in capsys.readouterr().err


def test_shovels_bring_messages_in_and_back_over_kills(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """A small run of `make link-checks`, which kills both brokers, many times."""
    report = shovels.run(rabbitmq, gateway, messages=2_000, kills=0, seed=1, protocol="amqp091")
    assert report.ok and report.twice == 0 and report.confirmed >= 2_000, report
    gateway.kill9()
    gateway.start()
    with api(gateway.ports["management"]) as target:
        until(lambda: {one["state"] for one in target.get("shovels").json()} == {"running"})
        for name in ("in", "out"):
            target.delete(f"shovels/vhost/%2F/{name}").raise_for_status()
