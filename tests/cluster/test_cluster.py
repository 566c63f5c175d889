"""A smoke of `tests.cluster.campaign`, and the ways into a cluster and out of it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pika
import pytest
from pika.exceptions import AMQPError

from bench.kafka import Door, Kafka, jars
from penstock.cluster.evidence import HELD_S
from penstock.cluster.settings import journal_options
from penstock.config import load
from penstock.errors import ConfigError, StartError
from penstock.log_core.replication.entries import Kind, encode
from penstock.log_core.replication.journal_options import KafkaOptions
from penstock.log_core.replication.kafka import KafkaJournal
from tests.cluster.campaign import contents, run
from tests.cluster.clients import run as takeovers
from tests.support.brokers import ROOT, BrokerMissing, Gateway, free_port
from tests.support.certificates import Authority
from tests.support.cluster import Node, make_brokers, make_nodes, secured, wait_for_owner
from tests.support.data_plane import until
from tests.support.documented import documented, placed
from tests.support.proxy import Links

JARS = ROOT / "build" / "kafka"
MESSAGES = 500


PASSWORD = "of the nodes"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Of the broker's certificate."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def door(authority: Authority) -> Door:
    """The broker's listener with TLS and a login."""
    return secured(authority)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, door: Door) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    try:
        [made] = make_brokers(folder, jars(JARS), 1, doors=[(door,)], users={"penstock": PASSWORD})
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.fixture
def broker(started: Kafka) -> Kafka:
    """One broker that serves; each test names a cluster of its own."""
    return started if started.running else started.start()


@pytest.fixture(scope="module")
def own_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a gateway that served alone, with MESSAGES messages in the queue `q`."""
    with Gateway(tmp_path_factory.mktemp("alone")) as alone:
        publish(alone.amqp_port, MESSAGES)
    return alone.data_dir


def publish(port: int, count: int) -> None:
    """Durable messages with confirms into the queue `q`."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    for number in range(count):
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    connection.close()


def depth(port: int) -> int:
    """Messages in the queue `q`."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    count = int(connection.channel().queue_declare("q", durable=True, passive=True).method.message_count)
    connection.close()
    return count


def give(folder: Path, node: Node) -> None:
    """A copy of the data folder for a node."""
    shutil.copytree(folder, node.data_dir, dirs_exist_ok=True)


LINES = {
    words[1]: words for words in documented(r"cluster (status|handover|rebuild).*") if "--config" in words
}
"""The commands of the pages, by verb: each with node.toml."""


def cluster(node: Node, verb: str, *more: str, of: str = "") -> str:
    """The output of a line of the pages with the settings of a node; `of` stands for NODE."""
    (node.folder / "node.toml").write_text("")
    sets = [word for key, value in node.settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock", *placed(LINES[verb], {"NODE": of}), *more, *sets]
    done = subprocess.run(command, cwd=node.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done.stdout


def refusal(node: Node) -> str:
    """The error of a node that cannot start."""
    done = subprocess.run(node.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.timeout(300)
def test_one_machine_becomes_a_cluster_and_a_cluster_one_machine(
    broker: Kafka, own_log: Path, tmp_path: Path
) -> None:
    settings = {"cluster.name": "moved", "server.drain_timeout_s": "600"}
    first, second, foreign = make_nodes(tmp_path, [broker], "abc", **settings)
    give(own_log, first)
    give(own_log, foreign)
    with first, second:
        assert wait_for_owner([first, second]) is first, "the folder that holds a log is the first owner's"
        assert depth(second.amqp_port) == MESSAGES
        publish(second.amqp_port, 10)
        error = refusal(foreign)
        assert "holds a log of its own" in error and "move the folder away" in error
        assert contents(foreign.data_dir) == contents(own_log)
        silent = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", first.amqp_port))
        assert cluster(first, "handover") == "b is the owner, before it was a\n"
        with suppress(AMQPError):
            silent.close()  # until now it did not hear that its gateway stopped
        assert wait_for_owner([second]) is second

        def roles() -> dict[str, str]:
            shown = json.loads(cluster(second, "status", "-o", "json"))
            return {node["node"]: node["role"] for node in shown["nodes"]}

        assert roles()["b"] == "owner"
        until(lambda: roles()["a"] == "standby")  # its process was started again
        told = cluster(second, "rebuild", of="a")
        assert told == "a makes its folder anew; `penstock cluster status` shows how far it is\n"
        until(lambda: "made anew from the journal: an administrator asked for it" in first.log_text())
    last = Gateway(tmp_path / "node-b", ports=(second.amqp_port, second.mqtt_port))
    with last:
        assert depth(last.amqp_port) == MESSAGES + 10


@pytest.mark.timeout(300)
def test_a_first_owner_that_was_killed_while_it_sent_its_folder_loses_nothing(
    broker: Kafka, own_log: Path, tmp_path: Path
) -> None:
    """Its folder stays as it is, and no other node serves the part that Kafka has."""
    first, second = make_nodes(tmp_path, [broker], "ab", **{"cluster.name": "torn"})
    give(own_log, first)
    before = contents(own_log)
    servers = (f"127.0.0.1:{broker.port}",)
    journal = KafkaJournal(
        KafkaOptions(bootstrap_servers=servers, topic="penstock.torn.log", allow_weak=True)
    )
    journal.prepare()
    claim = json.dumps({"node": "a", "files": len(before)}).encode()
    assert journal.claim(encode(Kind.CLAIM, 0, 0, payload=claim)) == 0
    name, content = next(iter(before.items()))
    journal.hint(encode(Kind.FILE, 0, 1, name=name, payload=content[:100], total=100))
    journal.hint(encode(Kind.RELEASE, 0, 0))
    journal.close()
    second.launch()
    with second:
        assert "holds a log of its own" in refusal(first)
        deadline = time.monotonic() + 60
        while "has not sent" not in second.log_text():
            assert time.monotonic() < deadline, second.log_tail()
            time.sleep(0.05)
        assert not second.is_owner
    assert contents(first.data_dir) == before


@pytest.mark.timeout(300)
def test_a_cluster_loses_nothing_when_its_owner_fails(broker: Kafka, tmp_path: Path) -> None:
    faults = ["kill_process", "stop_owner", "freeze", "kill_machine"]
    with Links() as links:
        report = run(
            tmp_path,
            [broker],
            names="ab",
            faults=faults,
            seed=1,
            links=links,
            cluster="faults",
            kinds=("amqp", "mqtt1", "mqtt2"),
            per_s=50,
            sdk=False,
        )
    assert report.ok, report
    assert report.takeovers > len(faults)


@pytest.mark.timeout(300)
def test_a_node_is_replaced_when_its_machine_says_that_its_processes_ended(
    broker: Kafka, tmp_path: Path
) -> None:
    settings = {"cluster.name": "dead", "cluster.suspect_s": "3600"}
    first, second = make_nodes(tmp_path, [broker], "ab", **settings)
    with first:
        wait_for_owner([first])
        with second:
            publish(second.amqp_port, MESSAGES)
            time.sleep(HELD_S + 1)  # the end of a connection that was shorter would be no evidence
            first.kill_machine()
            wait_for_owner([second])
            assert "claimed" in second.log_text() and "reason=ended" in second.log_text()
            assert depth(second.amqp_port) == MESSAGES


@pytest.mark.timeout(300)
def test_clients_live_through_a_takeover(broker: Kafka, tmp_path: Path) -> None:
    """More of them and more takeovers: `python -m tests.cluster.clients`."""
    with Links() as links:
        clients = ["aio-pika", "paho"]
        found = takeovers(
            tmp_path,
            [broker],
            clients=clients,
            takeovers=1,
            seed=1,
            links=links,
            names="ab",
            cluster="clients",
        )
    assert found == []


@pytest.mark.timeout(300)
def test_nodes_wait_for_kafka_and_stop_without_it(broker: Kafka, tmp_path: Path) -> None:
    settings = {"cluster.name": "waits", "server.drain_timeout_s": "1"}
    owner, standby, orphan = make_nodes(tmp_path, [broker], "abc", **settings)
    for listener in ("metrics.listen", "management.listen"):
        owner.settings[listener] = f"127.0.0.1:{free_port()}"
    for node in (owner, standby):
        node.settings["cluster.health_listen"] = f"127.0.0.1:{free_port()}"
    with owner:
        wait_for_owner([owner])
        standby.launch()
        orphan.launch()
        with standby, orphan:
            for node in (standby, orphan):
                node.wait_until_serving()
            publish(standby.amqp_port, 10)
            assert health(owner) == {"healthz": 200, "readyz": 200, "owner": 200}
            until(lambda: health(standby) == {"healthz": 200, "readyz": 200, "owner": 503})
            wait_for_nodes(owner, a=True, b=True, c=True)
            [process] = orphan.children()
            broker.kill9()
            orphan.kill9()
            standby.terminate()  # a clean stop, without Kafka
            gone = pidfd(process)
            broker.start()
            publish(owner.amqp_port, 10)
            assert depth(owner.amqp_port) == 20 and owner.is_owner
            wait_for_nodes(owner, a=True, b=False, c=False)
            consume_past_an_outage(owner, broker)
            owner.clean_exit_codes = frozenset({0, 1})  # 1: it cannot say that all is kept
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                owner.terminate()
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            assert gone is None or select.select([gone], [], [], 60)[0], "it outlived its supervisor"


def wait_for_nodes(owner: Node, **running: bool) -> None:
    """Wait until the owner's management API lists these nodes, running or not."""
    wanted = [(f"penstock@{name}", is_running) for name, is_running in running.items()]
    deadline = time.monotonic() + 60
    while nodes_of(owner) != wanted:
        assert time.monotonic() < deadline, nodes_of(owner)
        time.sleep(0.1)


def consume_past_an_outage(owner: Node, broker: Kafka) -> None:
    """Consumers of an owner get nothing while the broker is frozen, keep their connection, and then go on."""
    waits = "publishers wait: Kafka does not confirm"
    waited = owner.log_text().count(waits)
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", owner.amqp_port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    method, _, _ = next(channel.consume("q", inactivity_timeout=30))
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 30
        while owner.log_text().count(waits) == waited:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        until(lambda: page(owner, "readyz") == (503, "not ready\n"))  # publishers wait before its lease ends
        deadline = time.monotonic() + 30
        while health(owner) != {"healthz": 200, "readyz": 503, "owner": 200}:
            assert time.monotonic() < deadline
        assert "penstock_cluster_lease_held 0\n" in page(owner, "metrics")[1]
        channel.basic_ack(method.delivery_tag)
        assert next(channel.consume("q", inactivity_timeout=1.0)) == (None, None, None)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    method, _, _ = next(channel.consume("q", inactivity_timeout=30))
    assert method is not None
    connection.close()
    assert page(owner, "readyz") == (200, "ok\n")
    assert "penstock_cluster_lease_held 1\n" in page(owner, "metrics")[1]


def nodes_of(node: Node) -> list[tuple[str, bool]]:
    """The nodes and whether they run, by the management API."""
    address = f"http://{node.settings['management.listen']}/api/nodes"
    with urlopen(Request(address, headers={"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}), timeout=30) as found:
        return [(row["name"], row["running"]) for row in json.load(found)]


def health(node: Node) -> dict[str, int]:
    """Statuses of the node's own pages."""
    return {name: page(node, name, "cluster.health_listen")[0] for name in ("healthz", "readyz", "owner")}


def page(node: Node, path: str, listener: str = "metrics.listen") -> tuple[int, str]:
    """Status and text of a page."""
    try:
        with urlopen(f"http://{node.settings[listener]}/{path}", timeout=30) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def pidfd(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None: it has."""
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def test_kafka_is_reached_with_tls_and_a_login(
    broker: Kafka, door: Door, authority: Authority, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    settings = {
        "kafka.bootstrap_servers": f"127.0.0.1:{door.advertised}",
        "kafka.security_protocol": "sasl_ssl",
        "kafka.sasl_mechanism": "SCRAM-SHA-512",
        "kafka.username": "penstock",
        "kafka.password_file": str(password),
        "kafka.ca_file": str(authority.file),
        "kafka.allow_weak": "true",
        "kafka.answer_timeout_s": "60",
        "cluster.name": "secure",
    }

    def options(**changed: str) -> KafkaOptions:
        sets = [f"{key}={value}" for key, value in (settings | changed).items()]
        return journal_options(load(environ={}, sets=sets).config)

    password.write_text(PASSWORD)
    journal = KafkaJournal(options())
    journal.prepare()
    assert journal.claim(encode(Kind.CLAIM, 0, 0, payload=b"{}")) == 0
    assert [offset for offset, _ in journal.read(0, 1)] == [0]
    journal.note("a note")
    while not journal.notes():
        pass
    journal.close()
    with pytest.raises(StartError, match="certificate verify failed") as raised:
        KafkaJournal(options(**{"kafka.ca_file": ""}))
    assert raised.value.remedy and "kafka.ca_file" in raised.value.remedy
    password.write_text("of nobody")
    with pytest.raises(StartError, match="invalid credentials") as raised:
        KafkaJournal(options())
    assert raised.value.remedy and "password_file" in raised.value.remedy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kafka.bootstrap_servers": ""}, "kafka.bootstrap_servers"),
        ({"server.workers": "2"}, "server.workers"),
        ({"log.folders": "/tmp"}, "log.folders"),
        ({"kafka.options": "acks=1"}, "kafka.options"),
        ({"kafka.password_file": "/nowhere"}, "kafka.password_file"),
        ({"amqp.listen": "127.0.0.1:0"}, "amqp.listen"),
        ({"cluster.lease_s": "3"}, "cluster.suspect_s"),
    ],
)
def test_a_mistake_in_the_settings_names_the_key(settings: dict[str, str], words: str) -> None:
    basic = {"log.engine": "kafka", "kafka.bootstrap_servers": "127.0.0.1:9092"}
    sets = [f"{key}={value}" for key, value in (basic | settings).items()]
    with pytest.raises(ConfigError) as raised:
        journal_options(load(environ={}, sets=sets).config)
    assert raised.value.key == words and raised.value.remedy


def test_a_broker_that_does_not_answer_refuses_the_start(tmp_path: Path) -> None:
    brokers = make_brokers(tmp_path, tmp_path, 1)  # not started
    [node] = make_nodes(tmp_path, brokers, "a", **{"kafka.answer_timeout_s": "1"})
    error = refusal(node)
    assert "Kafka does not answer" in error and "kafka.bootstrap_servers" in error
