"""A smoke of `tests.cluster.faults`, and the ways into a cluster and out of it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from bench.kafka import Kafka, jars
from penstock.log_core.replication.entries import Kind, encode
from penstock.log_core.replication.journal_options import KafkaOptions
from penstock.log_core.replication.kafka import KafkaJournal
from tests.cluster.faults import contents, run
from tests.support.brokers import ROOT, BrokerMissing, Gateway, free_port
from tests.support.cluster import make_brokers, make_nodes, wait_for_owner

JARS = ROOT / "build" / "kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker; each test names a cluster of its own."""
    folder = tmp_path_factory.mktemp("kafka")
    try:
        [made] = make_brokers(folder, jars(JARS), 1)
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


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


@pytest.mark.timeout(300)
def test_one_machine_becomes_a_cluster_and_a_cluster_one_machine(broker: Kafka, tmp_path: Path) -> None:
    first, second = make_nodes(tmp_path, [broker], "ab", **{"cluster.name": "moved"})
    alone = Gateway(tmp_path / "node-a", ports=(first.amqp_port, first.mqtt_port))
    with alone:
        publish(alone.amqp_port, 500)
    with first, second:
        assert wait_for_owner([first, second]) is first, "the folder that holds a log is the first owner's"
        assert depth(second.amqp_port) == 500
        publish(second.amqp_port, 10)
        first.kill_machine()
        assert wait_for_owner([second]) is second
        assert depth(second.amqp_port) == 510
    last = Gateway(tmp_path / "node-b", ports=(second.amqp_port, second.mqtt_port))
    with last:
        assert depth(last.amqp_port) == 510


@pytest.mark.timeout(300)
def test_a_folder_with_a_log_of_its_own_is_not_touched(broker: Kafka, tmp_path: Path) -> None:
    there, own = make_nodes(tmp_path, [broker], "ab", **{"cluster.name": "foreign"})
    alone = Gateway(tmp_path / "node-b", ports=(own.amqp_port, own.mqtt_port))
    with alone:
        publish(alone.amqp_port, 20)
    before = contents(own.data_dir)
    with there:
        wait_for_owner([there])
        done = subprocess.run(own.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "holds a log of its own" in done.stderr and "move the folder away" in done.stderr
    assert contents(own.data_dir) == before
    with alone:
        assert depth(alone.amqp_port) == 20


@pytest.mark.timeout(300)
def test_a_first_owner_that_was_killed_while_it_sent_its_folder_loses_nothing(
    broker: Kafka, tmp_path: Path
) -> None:
    """Its folder stays as it is, and no other node serves the part that Kafka has."""
    first, second = make_nodes(tmp_path, [broker], "ab", **{"cluster.name": "torn"})
    alone = Gateway(tmp_path / "node-a", ports=(first.amqp_port, first.mqtt_port))
    with alone:
        publish(alone.amqp_port, 50)
    before = contents(first.data_dir)
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
    with second:
        done = subprocess.run(first.command(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "holds a log of its own" in done.stderr
        deadline = time.monotonic() + 60
        while "has not sent" not in second.log_text():
            assert time.monotonic() < deadline, second.log_tail()
            time.sleep(0.05)
        assert not second.is_owner
    assert contents(first.data_dir) == before


@pytest.mark.timeout(300)
def test_a_cluster_loses_nothing_when_its_owner_fails(broker: Kafka, tmp_path: Path) -> None:
    faults = ["kill_process", "hand_over", "freeze", "kill_machine"]
    report = run(tmp_path, [broker], nodes=2, faults=faults, seed=1)
    assert report.confirmed > 1000
    assert report.lost == [] and report.in_order
    assert set(report.pauses) == set(faults)


@pytest.mark.timeout(300)
def test_nodes_wait_for_kafka_and_stop_without_it(broker: Kafka, tmp_path: Path) -> None:
    owner, standby, orphan = make_nodes(tmp_path, [broker], "abc", **{"cluster.name": "waits"})
    with owner:
        wait_for_owner([owner])
        with standby, orphan:
            publish(standby.amqp_port, 10)
            [process] = orphan.children()
            broker.kill9()
            orphan.kill9()
            standby.terminate()  # a clean stop, without Kafka
            gone = pidfd(process)
            broker.start()
            publish(owner.amqp_port, 10)
            assert depth(owner.amqp_port) == 20 and owner.is_owner
            broker.kill9()
            owner.clean_exit_codes = frozenset({0, 1})  # 1: it cannot say that all is kept
            owner.terminate()
            assert gone is None or select.select([gone], [], [], 60)[0], "it outlived its supervisor"
    broker.start()


def pidfd(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None: it has."""
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kafka.bootstrap_servers": ""}, "kafka.bootstrap_servers"),
        ({"server.workers": "2"}, "server.workers"),
        ({"log.folders": "/tmp"}, "log.folders"),
        ({"kafka.options": "acks=1"}, "kafka.options"),
        ({"kafka.password_file": "/nowhere"}, "kafka.password_file"),
        ({"amqp.listen": "127.0.0.1:0"}, "amqp.listen"),
    ],
)
def test_a_mistake_in_the_settings_names_the_key(
    settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    basic = {"log.engine": "kafka", "kafka.bootstrap_servers": f"127.0.0.1:{free_port()}"}
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path)]
    for key, value in (basic | settings).items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_broker_that_does_not_answer_refuses_the_start(tmp_path: Path) -> None:
    brokers = make_brokers(tmp_path, tmp_path, 1)  # not started
    node = make_nodes(tmp_path, brokers, "a")[0]
    done = subprocess.run(
        node.command(), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "Kafka does not answer" in done.stderr and "kafka.bootstrap_servers" in done.stderr
