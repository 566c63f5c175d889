"""The log read from elsewhere, as tasks of Spark do, without a JVM: the same rows, kept while needed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from penstock.cli import main
from penstock.sdk.errors import ClientError, ConnectionLost, Refused
from penstock.sdk.log_client import LogClient
from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs.lag import behind
from penstock.spark.jobs.shared.registry import jobs_folder, registered
from penstock.spark.logs import reading, storage
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.planning import open_view, plan, selection_of
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.logs.storage import close_clients, storage_of
from penstock.spark.options import ReadOptions
from penstock.spark.retry import RetryWindow
from penstock.spark.schema import COLUMNS
from penstock.spark.tables.parquet import ParquetFormat
from tests.support.brokers import Gateway, free_port
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("other brokers have no log")

SETTINGS = {
    "native.listen": "127.0.0.1:0",
    "management.listen": "127.0.0.1:0",
    "log.segment_bytes": "1MiB",
    "log.checkpoint_bytes": "1MiB",
    "log.traffic_retention_bytes": "0",
}
DEADLINE_S = 300.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "gateway", settings=SETTINGS) as running:
        yield running
    close_clients()


def url_of(gateway: Gateway, user: str = "guest") -> str:
    return f"penstock://{user}:{user}@127.0.0.1:{gateway.ports['native']}"


def publish(gateway: Gateway, first: int, count: int, size: int = 20_000) -> None:
    """Confirmed messages; 50 of them fill a segment."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    for index in range(first, first + count):
        properties = pika.BasicProperties(delivery_mode=2, message_id=str(index), headers={"n": index})
        channel.basic_publish("amq.topic", f"key.{index % 3}", bytes(size), properties)
    connection.close()


def rows(source: str | Path, columns: tuple[str, ...] = ("message_id",), **more: str) -> list[Any]:
    """All rows that a query over this source gets."""
    options = ReadOptions.parse({"path": str(source), "isolation": "written", **more})
    view = open_view(options)
    view.refresh()
    end = view.end(written=True)
    selection = selection_of(view, options, columns, view.complete_from)
    return [
        row
        for task in plan(view, options, selection, view.first, end)
        for batch in read_parts(options.storage, task, selection)
        for row in batch.to_pylist()
    ]


def hold_everything(gateway: Gateway) -> LogClient:
    client = LogClient(url_of(gateway))
    client.acquire_lease("test", 1, 3600)
    return client


def test_a_gateway_sends_the_rows_that_its_files_have(gateway: Gateway) -> None:
    holder = hold_everything(gateway)
    publish(gateway, 0, 300)
    publish(gateway, 300, 40, size=2_500_000)  # larger than a chunk
    columns = tuple(COLUMNS)
    local = rows(gateway.data_dir, columns)
    assert len(local) == 340
    assert {row["vhost"] for row in local} == {"/"}
    assert rows(url_of(gateway), columns) == local
    some = rows(url_of(gateway), routingKeys="key.1")
    assert some == rows(gateway.data_dir, routingKeys="key.1")
    assert len(some) == len([index for index in range(340) if index % 3 == 1])
    split = rows(url_of(gateway), minPartitions="20", taskBytes="100000")
    assert [int(row["message_id"]) for row in split] == list(range(340))
    holder.close()


def test_a_view_follows_a_log_that_is_written(gateway: Gateway) -> None:
    holder = hold_everything(gateway)
    view = LogView(url_of(gateway))
    view.refresh()
    options = ReadOptions.parse({"path": url_of(gateway)})
    at, found = view.first, []
    for first in range(0, 150, 30):
        publish(gateway, first, 30)
        view.refresh()
        end = view.end(written=True)
        selection = selection_of(view, options, ("message_id",), at)
        for batch in read_parts(view.storage, view.parts(at, end, 1 << 62), selection):
            found += [int(value) for value in batch.column(0).to_pylist()]
        at = end
    assert found == list(range(150))
    holder.close()


def test_a_gateway_that_was_killed_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a task's reads, and before the planner's; until then it is waited for."""
    kept = {"log.traffic_retention_bytes": "1GiB", "log.traffic_retention_s": "1000000"}
    settings = {**SETTINGS, **kept, "native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        publish(gateway, 0, 60, size=200_000)
        url = url_of(gateway)
        view = LogView(url)
        view.refresh()
        end = view.end(written=True)
        gateway.kill9()
        with pytest.raises(ConnectionLost, match="was lost"):
            storage_of(url, 0.0).refresh()
        with pytest.raises(ConnectionLost, match="cannot be reached: Connection refused; is it running"):
            storage_of(url, 0.0).refresh()
        looks: list[str] = []

        class Returns(RetryWindow):
            def wait(self, error: Exception) -> None:
                looks.append(str(error))
                if not gateway.running:
                    gateway.start()
                super().wait(error)

        monkeypatch.setattr(storage, "RetryWindow", Returns)
        view.refresh()
        assert len(looks) == 1
        monkeypatch.setattr(reading, "_BYTES_MAX", 1 << 20)
        found: list[int] = []
        selection = Selection(("message_id", "payload"))
        for batch in read_parts(view.storage, view.parts(view.first, end, 1 << 62), selection):
            found += map(int, batch.column(0).to_pylist())
            if len(looks) < 4:
                gateway.kill9()
        assert found == list(range(60))
        assert len(looks) == 4
        close_clients()


def test_a_peer_that_is_no_gateway_is_reported(gateway: Gateway) -> None:
    remedy = r"is this the address of native\.listen\? AMQP, MQTT and HTTP have others"
    for port in (gateway.amqp_port, gateway.mqtt_port, gateway.ports["management"]):
        with pytest.raises(ClientError, match=rf"127\.0\.0\.1:{port} (does not speak|closed).*; {remedy}"):
            LogClient(f"penstock://guest:guest@127.0.0.1:{port}")
    with pytest.raises(ClientError) as caught:
        LogClient(url_of(gateway).replace("penstock:", "penstocks:"))
    assert "native.tls_listen" in str(caught.value) or "did not say that it is" in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(8)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ClientError, match="does not speak the native protocol") as caught:
            LogClient(f"penstock://127.0.0.1:{server.getsockname()[1]}")
        assert not caught.value.retryable, "nobody waits for it to become a gateway"
        thread.join()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lease_keeps_the_log_and_is_seen_with_its_lag(gateway: Gateway) -> None:
    client = LogClient(url_of(gateway))
    client.acquire_lease("nightly", 1, 3600)
    publish(gateway, 0, 400)
    view = LogView(gateway.data_dir)
    view.refresh()
    assert view.loss_between(1, view.end(written=True)) == []
    (reader,) = client.leases()
    assert (reader["name"], reader["user"], reader["position"]) == ("nightly", "guest", 1)
    assert reader["behind"] >= 400
    api = Api(gateway)
    (shown,) = api.get("log-readers")
    assert {key: shown[key] for key in ("name", "user", "position")} == {
        "name": "nightly",
        "user": "guest",
        "position": 1,
    }
    api.close()
    client.release_lease("nightly")

    def deleted() -> bool:
        publish(gateway, 0, 10)
        view.refresh()
        return view.first > 1

    wait_until(deleted)
    client.close()


def test_only_an_administrator_reads_the_log(gateway: Gateway) -> None:
    api = Api(gateway)
    assert api.status("PUT", "users/eve", {"password": "eve", "tags": "monitoring"}) < 300
    assert api.status("PUT", "permissions/%2F/eve", {"configure": ".*", "write": ".*", "read": ".*"}) < 300
    client = LogClient(url_of(gateway, "eve"))
    for ask in (
        client.listing,
        lambda: client.take(client.ask(1, 0, 0, 100)),
        lambda: client.acquire_lease("eve", 1, 10),
        client.leases,
        lambda: client.release_lease("x"),
    ):
        with pytest.raises(Refused, match="it has the messages of all vhosts"):
            ask()
    client.close()
    eve = Api(gateway, "eve", "eve")
    assert eve.status("GET", "log-readers") == 200, "monitoring sees who reads"
    for one in (api, eve):
        one.close()
    nobody = httpx.get(f"http://127.0.0.1:{gateway.ports['management']}/api/log-readers", timeout=LIMIT_S)
    assert nobody.status_code == 401


def test_a_missing_file_is_named(gateway: Gateway) -> None:
    publish(gateway, 0, 1)
    client = LogClient(url_of(gateway))
    (number, inode, size) = client.listing().segments[-1]
    with pytest.raises(FileNotFoundError, match="there is no segment 999 any more"):
        client.take(client.ask(999, 0, 0, 100))
    with pytest.raises(FileNotFoundError):
        client.take(client.ask(number, inode + 1, 0, 100))
    assert client.take(client.ask(number, inode, size, 100)) == b"", "behind its end"
    assert client.take(client.ask(number, inode, 0, 8)) == b"PENSTOCK"
    asked = [client.ask(number, inode, 0, 1 << 20) for _ in range(8)]
    for one in asked[:4]:
        client.forget(one)
    assert {client.take(one)[:8] for one in asked[4:]} == {b"PENSTOCK"}
    client.close()
    with pytest.raises(ClientError, match="the login was refused"):
        LogClient(url_of(gateway, "nobody"))


def test_more_reads_than_may_wait_are_refused_and_the_connection_goes_on(gateway: Gateway) -> None:
    publish(gateway, 0, 60)
    client = LogClient(url_of(gateway))
    (number, inode, _) = client.listing().segments[0]
    asked = [client.ask(number, inode, 0, 1 << 20) for _ in range(200)]
    answers = []
    for one in asked:
        try:
            answers.append(client.take(one)[:8])
        except Refused as error:
            assert error.code == "busy"
            answers.append(b"busy")
    assert answers.count(b"PENSTOCK") >= 17
    assert client.listing().segments
    client.close()


def test_addresses_are_checked_when_the_query_is_made() -> None:
    with pytest.raises(SparkOptionError, match="write penstock://"):
        ReadOptions.parse({"path": "/x", "endpoint": "http://gw"})
    options = ReadOptions.parse({"path": "penstock://u:p@gw"})
    assert options.endpoint == "penstock://u:p@gw"
    assert str(options.storage) == "the log of gw", "no password in messages"


def test_cold_segments_are_archived_from_elsewhere(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SPARK_JOBS", str(tmp_path / "jobs"))
    holder = hold_everything(gateway)
    publish(gateway, 0, 300)
    archive = tmp_path / "archive"
    words = ["spark", "tier", "--data", url_of(gateway), "--to", f"parquet:{archive}", "--older-than", "0s"]

    def archived() -> bool:
        assert main([*words, "--cores", "1"]) == 0
        return len(list(archive.glob("event_date=*/*.parquet"))) > 3

    wait_until(archived)
    with registered("nightly", "sink", url_of(gateway), "delta:/t") as job:
        (file,) = jobs_folder().glob("*.json")
        assert file.stat().st_mode & 0o077 == 0, "the password is in it"
        wait_until(lambda: behind(job)[0] > 300)
    # Records not yet archived are still needed; the rest may be deleted.
    view = LogView(gateway.data_dir)
    view.refresh()
    position = ParquetFormat(archive).position(view.log_id)
    assert position is not None
    holder.acquire_lease("test", position, 3600)
    publish(gateway, 300, 100)
    assert [int(row["message_id"]) for row in rows(url_of(gateway), archive=f"parquet:{archive}")] == list(
        range(400)
    )
    holder.close()
