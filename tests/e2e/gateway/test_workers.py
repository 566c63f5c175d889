"""`server.workers = 2`: clients of every protocol meet in the worker of their vhost, whichever accepted them.

The kernel chooses the worker that accepts, so each test connects until both have (`both_ways`).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from proton import Message
from proton.utils import BlockingConnection
from websockets.sync.client import connect as websocket

import penstock
from penstock.cli import main
from penstock.protocols.amqp10.codec.performatives import Open
from tests.support.amqp10_login import scram_login
from tests.support.brokers import ROOT, BrokerFailed, Gateway
from tests.support.certificates import Authority
from tests.support.documented import documented, placed
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api
from tests.support.workers import WAIT_S, amqp, pids, until

pytestmark = [pytest.mark.penstock_only("this is about penstock's processes")]

SERVED = "connection handed over"
MOST_TRIES = 64
VHOSTS = ("/", "b")
"""The first is worker 0's; the second one is made when there is one vhost, so it is worker 1's."""


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = authority.server()
    settings = {
        **SETTINGS,
        "server.workers": "2",
        "http.listen": "127.0.0.1:0",
        "native.listen": "127.0.0.1:0",
        "amqp.tls_listen": "127.0.0.1:0",
        "mqtt.ws_listen": "127.0.0.1:0",
        "http.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path_factory.mktemp("workers"), settings=settings) as running:
        with closing(Api(running)) as api:
            assert api.status("PUT", "vhosts/b") == 201
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def both_ways(gateway: Gateway, logger: str, once: Callable[[], object]) -> None:
    """Do it until connections were served where they were accepted, and by the other worker."""
    moved = stayed = 0
    for _ in range(MOST_TRIES):
        before = handed_over(gateway, logger)
        once()
        if handed_over(gateway, logger) > before:
            moved += 1
        else:
            stayed += 1
        if moved and stayed:
            return
    pytest.fail(f"{moved} connections were handed over, {stayed} were not")


def handed_over(gateway: Gateway, logger: str) -> int:
    return sum(f"penstock.{logger} " in line and SERVED in line for line in gateway.log_text().splitlines())


def closed_by_broker(connection: pika.BlockingConnection) -> None:
    """Wait until the gateway closes it."""
    deadline = time.monotonic() + WAIT_S
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        while time.monotonic() < deadline:
            connection.process_data_events(time_limit=1)


def publish_and_take(connection: pika.BlockingConnection, name: str) -> None:
    """A confirmed message there and back, with a large one behind it."""
    with closing(connection):
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        for body in (b"small", b"l" * 300_000):
            channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))
        for body in (b"small", b"l" * 300_000):
            assert channel.basic_get(name, auto_ack=True)[2] == body


@pytest.mark.parametrize("vhost", VHOSTS)
def test_an_amqp_client_is_served_by_the_worker_of_its_vhost(gateway: Gateway, vhost: str) -> None:
    both_ways(gateway, "amqp", lambda: publish_and_take(amqp(gateway, vhost), "amqp"))


@pytest.mark.parametrize("vhost", VHOSTS)
def test_a_client_of_amqp_1_0_is_served_by_the_worker_of_its_vhost(gateway: Gateway, vhost: str) -> None:
    def once() -> None:
        connection = BlockingConnection(
            f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}",
            timeout=LIMIT_S,
            allowed_mechs="PLAIN",
            virtual_host=f"vhost:{vhost}",
        )
        receiver = connection.create_receiver(None, dynamic=True)
        sender = connection.create_sender(receiver.link.remote_source.address)
        for body in (b"small", b"l" * 300_000):
            sender.send(Message(body=body, inferred=True, durable=True))
            assert bytes(receiver.receive(timeout=LIMIT_S).body) == body
            receiver.accept()
        connection.close()

    both_ways(gateway, "amqp", once)


def test_a_login_by_scram_is_repeated_by_the_worker_of_the_vhost(gateway: Gateway) -> None:
    def once() -> None:
        with scram_login(gateway.amqp_port, "guest", b"guest", hostname="vhost:b") as first:
            assert isinstance(first, Open)

    both_ways(gateway, "amqp", once)


@pytest.mark.parametrize("vhost", VHOSTS)
def test_a_client_with_tls_too__its_bytes_pass_through(
    gateway: Gateway, authority: Authority, vhost: str
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))

    def once() -> None:
        options = pika.SSLOptions(context, "localhost")
        connection = amqp(gateway, vhost, port=gateway.ports["amqps"], ssl_options=options)
        publish_and_take(connection, "tls")

    both_ways(gateway, "amqp", once)


def test_clients_of_one_vhost_share_its_queues_whichever_worker_accepted_them(gateway: Gateway) -> None:
    consumers = [amqp(gateway, "b") for _ in range(8)]
    try:
        got: list[bytes] = []
        for connection in consumers:
            channel = connection.channel()
            channel.queue_declare("shared", durable=True)
            channel.basic_qos(prefetch_count=1)

            def on_message(channel, method, properties, body):  # type: ignore[no-untyped-def]
                got.append(body)
                channel.basic_ack(method.delivery_tag)

            channel.basic_consume("shared", on_message)
        with closing(amqp(gateway, "b")) as publisher:
            channel = publisher.channel()
            channel.confirm_delivery()
            for number in range(80):
                channel.basic_publish("", "shared", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        deadline = time.monotonic() + WAIT_S
        while len(got) < 80 and time.monotonic() < deadline:
            for connection in consumers:
                connection.process_data_events(time_limit=0)
        assert sorted(map(int, got)) == list(range(80))
    finally:
        for connection in consumers:
            connection.close()


def mqtt(gateway: Gateway, vhost: str, client_id: str, **more: str) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, **more)  # type: ignore[arg-type]
    client.username_pw_set(f"{vhost}:guest", "guest")
    return client


def test_a_session_belongs_to_its_user_in_every_worker(gateway: Gateway, api: Api) -> None:
    assert api.status("PUT", "users/eve", {"password": "eve", "tags": "administrator"}) == 201
    grant = dict.fromkeys(("configure", "write", "read"), ".*")
    assert api.status("PUT", "permissions/b/eve", grant) == 201

    def connect_as(user: str) -> tuple[bool, paho.Client]:
        codes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        client = mqtt(gateway, "b", "owned", clean_session=False)  # type: ignore[arg-type]
        client.username_pw_set(f"b:{user}", user)
        client.on_connect = lambda *args: codes.put(args[3].is_failure)
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        return codes.get(timeout=WAIT_S), client

    refused, owner = connect_as("guest")
    assert not refused

    def once() -> None:
        refused, other = connect_as("eve")
        other.disconnect()
        other.loop_stop()
        assert refused and owner.is_connected()

    try:
        both_ways(gateway, "mqtt", once)
    finally:
        owner.disconnect()
        owner.loop_stop()
        api.status("DELETE", "queues/b/mqtt-subscription-ownedqos1")
        api.status("DELETE", "users/eve")


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_mqtt_clients_meet_in_the_worker_of_their_vhost(gateway: Gateway, transport: str) -> None:
    port = gateway.mqtt_port if transport == "tcp" else gateway.ports["ws"]
    numbers = iter(range(MOST_TRIES))

    def once() -> None:
        number = next(numbers)
        got: queue.Queue[bytes] = queue.Queue()
        subscribed = threading.Event()
        one = mqtt(gateway, "b", f"{transport}-one-{number}", transport=transport)
        two = mqtt(gateway, "b", f"{transport}-two-{number}", transport=transport)
        one.on_message = lambda client, data, message: got.put(message.payload)
        one.on_subscribe = lambda *_: subscribed.set()
        one.on_connect = lambda client, *_: client.subscribe(f"x/{number}", 1)
        for client in (one, two):
            client.connect("127.0.0.1", port)
            client.loop_start()
        try:
            assert subscribed.wait(WAIT_S)
            two.publish(f"x/{number}", b"hello", 1).wait_for_publish(WAIT_S)
            assert got.get(timeout=WAIT_S) == b"hello"
        finally:
            for client in (one, two):
                client.disconnect()
                client.loop_stop()

    both_ways(gateway, "mqtt", once)


async def test_the_sdk_produces_and_consumes_in_any_vhost(gateway: Gateway) -> None:
    for number in range(6):
        for vhost in ("", "b"):
            url = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}/{vhost}"
            async with penstock.connect(url) as client:
                async with client.producer(f"s{number}", create=True) as producer:
                    await producer.send(b"hello")
                async with client.subscribe(f"s{number}", "r", start="earliest") as consumer:
                    found = await consumer.receive_many(1, WAIT_S)
                    assert [message.body for message in found] == [b"hello"]


def test_http_is_answered_for_every_vhost_by_every_worker(gateway: Gateway, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    urls = (
        f"http://127.0.0.1:{gateway.ports['http']}",
        f"https://localhost:{gateway.ports['http_tls']}",
    )
    with closing(amqp(gateway, "b")) as connection:
        connection.channel().queue_declare("http", durable=True)
    for url in urls:
        for _ in range(6):
            with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60, verify=context) as client:
                sent = client.post("/v1/vhosts/b/queues/http/messages", content=b"m" * 200_000)
                assert sent.status_code == 200, sent.text
                pulled = client.post("/v1/vhosts/b/queues/http/pull", json={"wait_ms": 30_000})
                assert pulled.status_code == 200, pulled.text
                (message,) = pulled.json()["messages"]
                acked = client.post("/v1/vhosts/b/queues/http/ack", json={"handles": [message["handle"]]})
                assert acked.status_code == 200, acked.text
                assert client.get("/v1/vhosts/nowhere/streams").status_code == 404


def test_a_websocket_of_the_data_plane_is_handed_over(gateway: Gateway) -> None:
    numbers = iter(range(MOST_TRIES))

    def once() -> None:
        url = f"ws://127.0.0.1:{gateway.ports['http']}/v1/vhosts/b/ws"
        headers = {"Authorization": httpx.BasicAuth("guest", "guest")._auth_header}
        with websocket(url, additional_headers=headers) as socket:
            socket.send(json.dumps({"op": "ping", "id": str(next(numbers))}))
            assert socket.recv(timeout=WAIT_S)

    both_ways(gateway, "http", once)


def test_mqtt_over_a_websocket_of_http_is_in_the_worker_of_its_vhost(gateway: Gateway) -> None:
    """Whichever vhost the path names, and whichever worker accepted it; nobody gives a password."""

    def once() -> None:
        for vhost in VHOSTS:
            name = f"{vhost}:guest".encode()
            connect = b"\0\x04MQTT\x05\x82\0\x3c\0\0\x04page" + len(name).to_bytes(2, "big") + name
            with websocket(
                f"ws://127.0.0.1:{gateway.ports['http']}/v1/vhosts/{quote(vhost, safe='')}/mqtt",
                additional_headers={"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="},
                subprotocols=["mqtt"],  # type: ignore[list-item]
            ) as socket:
                socket.send(b"\x10" + bytes((len(connect),)) + connect)
                connack = socket.recv(timeout=WAIT_S)
                assert isinstance(connack, bytes) and connack[0] >> 4 == 2 and connack[3] == 0

    both_ways(gateway, "http", once)


def test_certificates_are_read_again_in_every_worker(
    gateway: Gateway, api: Api, authority: Authority
) -> None:
    """The watch of the files may have done it before in some: afterwards none has the old ones."""
    place = ("127.0.0.1", gateway.ports["amqps"])
    before = ssl.get_server_certificate(place)
    authority.server()
    assert api.status("POST", "certificates/reload") == 204
    seen = {ssl.get_server_certificate(place) for _ in range(MOST_TRIES)}
    assert len(seen) == 1 and before not in seen


def test_lists_and_sums_are_of_all_workers(gateway: Gateway, api: Api) -> None:
    for vhost in VHOSTS:
        with closing(amqp(gateway, vhost)) as connection:
            connection.channel().queue_declare("listed", durable=True)
    for _ in range(6):
        with closing(Api(gateway)) as one:
            found = one.get("queues?name=listed&columns=vhost,name")
            assert found == [{"vhost": "/", "name": "listed"}, {"vhost": "b", "name": "listed"}]
            page = one.get("queues?name=listed&page=2&page_size=1")
            assert (page["total_count"] >= 2, page["filtered_count"]) == (True, 2)
            assert [item["vhost"] for item in page["items"]] == ["b"]
            assert one.get("queues/b/listed")["vhost"] == "b"
            assert [vhost["name"] for vhost in one.get("vhosts")] == ["/", "b"]
            assert len(one.get("nodes")) == 2
            exchanges = len(one.get("exchanges"))
            assert one.get("overview")["object_totals"]["exchanges"] == exchanges
            assert one.get("health/checks/alarms") == {"status": "ok"}
    text = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=LIMIT_S).text
    assert 'rabbitmq_process_open_fds{worker="0"}' in text and 'worker="1"}' in text
    assert text.count("# TYPE rabbitmq_process_open_fds gauge") == 1


def test_a_connection_is_found_and_closed_wherever_it_is(gateway: Gateway) -> None:
    for number in range(4):
        with closing(Api(gateway)) as one:
            connection = amqp(gateway, "b", client_properties={"connection_name": f"named{number}"})
            named = [
                item["name"]
                for item in one.get("connections")
                if item["client_properties"].get("connection_name") == f"named{number}"
            ]
            assert len(named) == 1
            assert one.get(f"connections/{named[0]}")["vhost"] == "b"
            assert one.status("DELETE", f"connections/{named[0]}") == 204
            closed_by_broker(connection)


def test_the_line_of_the_pages_makes_a_vhost_in_a_worker(
    gateway: Gateway, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    for words in documented(r"vhosts create NAME --worker 1"):
        assert main(placed(words, {"NAME": "of-one"})) == 0
    assert api.get("vhosts/of-one")["worker"] == 1
    assert api.status("DELETE", "vhosts/of-one") == 204


def test_stopping_the_application_stops_it_in_every_worker(gateway: Gateway) -> None:
    with closing(Api(gateway)) as one:
        node = one.get("overview")["node"]
        assert one.status("PUT", f"nodes/{node}/application", {"state": "stopped"}) == 200
        try:
            for vhost in VHOSTS:
                with pytest.raises(pika.exceptions.AMQPConnectionError):
                    amqp(gateway, vhost)
        finally:
            assert one.status("PUT", f"nodes/{node}/application", {"state": "running"}) == 200
        for vhost in VHOSTS:
            amqp(gateway, vhost).close()


def test_rabbitmqctl_speaks_of_all_workers(gateway: Gateway, api: Api) -> None:
    def rabbitmqctl(*words: str) -> str:
        url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "rabbitmqctl", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PENSTOCK_URL": url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    assert "Ping succeeded" in rabbitmqctl("ping")
    status = json.loads(rabbitmqctl("status", "--formatter", "json"))
    assert status["node"] in [node["name"] for node in api.get("nodes")]
    rabbitmqctl("set_log_level", "error")
    assert [node["log_level"] for node in api.get("nodes")] == ["error", "error"]
    rabbitmqctl("set_log_level", "info")
    rabbitmqctl("set_vm_memory_high_watermark", "absolute", "2TiB")
    assert [node["mem_limit"] for node in api.get("nodes")] == [2**40, 2**40], "they share it"


def test_users_and_permissions_hold_everywhere_as_soon_as_they_are_answered(gateway: Gateway) -> None:
    credentials = pika.PlainCredentials("ann", "secret")
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, "b", credentials)
    for number in range(3):
        with closing(Api(gateway)) as one:
            assert one.status("PUT", "users/ann", {"password": "secret", "tags": ""}) == 201
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            assert one.status("PUT", "permissions/b/ann", rights) == 201
            connection = pika.BlockingConnection(parameters)
            connection.channel().queue_declare(f"ann{number}")
            assert one.status("PUT", "users/ann", {"password": "other", "tags": ""}) == 204
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(parameters)
            assert one.status("DELETE", "users/ann") == 204
            closed_by_broker(connection)


def test_a_vhost_of_another_worker_is_changed_and_removed_like_any(gateway: Gateway) -> None:
    for _ in range(4):
        with closing(Api(gateway)) as one:
            assert one.status("PUT", "vhosts/gone", {"description": "soon"}) == 201
            assert one.status("PUT", "vhosts/gone2") == 201
            assert one.status("PUT", "vhost-limits/gone/max-queues", {"value": 1}) == 204
            assert one.get("vhosts/gone")["description"] == "soon"
            assert one.get("vhost-limits/gone") == [{"vhost": "gone", "value": {"max-queues": 1}}]
            connections = [amqp(gateway, "gone"), amqp(gateway, "gone2")]
            connections[0].channel().queue_declare("one", durable=True)
            connections[1].channel().queue_declare("one", durable=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker):
                connections[0].channel().queue_declare("two", durable=True)
            for vhost, connection in zip(("gone", "gone2"), connections, strict=True):
                assert one.status("DELETE", f"vhosts/{vhost}") == 204
                closed_by_broker(connection)
                with pytest.raises(pika.exceptions.AMQPConnectionError):
                    amqp(gateway, vhost)
            assert [vhost["name"] for vhost in one.get("vhosts")] == ["/", "b"]


def test_a_vhost_is_made_where_it_is_asked_for(api: Api, gateway: Gateway) -> None:
    for number, worker in enumerate((1, 1, 0)):
        assert api.status("PUT", f"vhosts/v{number}", {"worker": worker}) == 201
        assert api.status("PUT", f"vhosts/v{number}", {"worker": worker, "tags": "x"}) == 204
        assert api.get(f"vhosts/v{number}")["worker"] == worker
        amqp(gateway, f"v{number}").close()
    for body, told in (
        ({"worker": 2}, "there is no worker 2"),
        ({"worker": "1"}, "there is no worker '1'"),
        ({"worker": True}, "there is no worker True"),
    ):
        answer = api.send("PUT", "vhosts/new", body)
        assert answer.status_code == 400 and told in answer.text, answer.text
    answer = api.send("PUT", "vhosts/v0", {"worker": 0})
    assert answer.status_code == 400 and "belongs to worker 1" in answer.text
    body = {"vhosts": [{"name": "v3", "worker": 1}, {"name": "v2", "worker": 1}]}
    assert api.send("POST", "definitions", body).status_code == 204
    assert [api.get(f"vhosts/{name}")["worker"] for name in ("v3", "v2")] == [1, 0]
    for number in range(4):
        assert api.status("DELETE", f"vhosts/v{number}") == 204


def test_definitions_come_out_whole_and_go_in_where_they_belong(gateway: Gateway) -> None:
    body = {
        "vhosts": [{"name": "d1"}, {"name": "d2"}],
        "queues": [
            {"vhost": vhost, "name": "defined", "durable": True, "arguments": {}} for vhost in ("d1", "d2")
        ],
        "policies": [
            {"vhost": vhost, "name": "p", "pattern": ".*", "definition": {"max-length": 7}}
            for vhost in ("d1", "d2")
        ],
        "permissions": [
            {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
            for vhost in ("d1", "d2")
        ],
        "bindings": [
            {
                "vhost": vhost,
                "source": "amq.direct",
                "destination": "defined",
                "destination_type": "queue",
                "routing_key": "k",
                "arguments": {},
            }
            for vhost in ("d1", "d2")
        ],
    }
    for _ in range(4):
        with closing(Api(gateway)) as one:
            answer = one.send("POST", "definitions", body)
            assert answer.status_code == 204, answer.text
            whole = one.get("definitions")
            for part in ("queues", "policies", "bindings"):
                assert {item["vhost"] for item in whole[part]} >= {"d1", "d2"}, part
            assert [vhost["name"] for vhost in whole["vhosts"]].count("d2") == 1
            for vhost in ("d1", "d2"):
                with closing(amqp(gateway, vhost)) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    channel.basic_publish("amq.direct", "k", b"", mandatory=True)
                assert one.status("DELETE", f"vhosts/{vhost}") == 204


# Processes


@pytest.fixture
def handover(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which supervisors make theirs; it is empty when they are gone."""
    with tempfile.TemporaryDirectory(prefix="w") as folder:  # a short name: sockets are in it
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def own(tmp_path: Path, handover: Path) -> Iterator[Gateway]:
    """A gateway of the test's own, with a vhost in each of its two workers."""
    with Gateway(tmp_path / "workers", settings={**SETTINGS, "server.workers": "2"}) as gateway:
        with closing(Api(gateway)) as api:
            assert api.status("PUT", "vhosts/b") == 201
        yield gateway


def test_a_worker_that_ends_again_is_started_less_often__who_comes_meanwhile_waits(own: Gateway) -> None:
    for delay_s in (0.0, 0.5):
        known = pids(own)[1]
        os.kill(known, signal.SIGKILL)
        until(lambda: own.log_text().count("worker 1 ended") >= (1 if delay_s == 0 else 2), own)  # noqa: B023
        with closing(amqp(own, "b", socket_timeout=WAIT_S, connection_attempts=50)) as connection:
            connection.channel().queue_declare("q")
        assert f"in_s={delay_s}" in own.log_text()
        until(lambda: pids(own)[1] != known, own)  # noqa: B023


def test_all_end_with_the_supervisor_and_fewer_workers_than_vhosts_need_are_refused(
    own: Gateway, handover: Path
) -> None:
    with closing(amqp(own, "b")) as connection:
        connection.channel().queue_declare("kept", durable=True)
    workers = list(pids(own).values())
    own.kill9()
    until(lambda: all(_is_gone(pid) for pid in workers), own)
    assert list(handover.iterdir()) == []
    own.settings["server.workers"] = "1"
    with pytest.raises(BrokerFailed, match=r"'b'(.|\n)*set server.workers to 2"):
        own.start()
    own.settings["server.workers"] = "3"
    own.start()
    with closing(amqp(own, "b")) as connection:
        connection.channel().queue_declare("kept", passive=True)
    assert own.terminate() == 0
    folders = [own.data_dir, own.data_dir / "worker-001", own.data_dir / "worker-002"]
    assert all((folder / "CLEAN").exists() for folder in folders)


def test_a_worker_that_cannot_start_ends_all_with_its_reason(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "workers", settings={"server.workers": "2"})
    (gateway.data_dir / "shard-000").write_text("no folder")
    with pytest.raises(BrokerFailed, match="ended with 1 at start") as refused, gateway:
        pass
    assert "cannot use the data folder" in str(refused.value) and "all stop" in str(refused.value)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_definitions_at_start_reach_every_worker_and_a_stop_says_goodbye_to_every_client(
    tmp_path: Path, authority: Authority
) -> None:
    definitions = tmp_path / "definitions.json"
    queues = [{"vhost": vhost, "name": "defined", "durable": True, "arguments": {}} for vhost in VHOSTS]
    rights = {"user": "guest", "vhost": "b", "configure": ".*", "write": ".*", "read": ".*"}
    definitions.write_text(json.dumps({"vhosts": [{"name": "b"}], "permissions": [rights], "queues": queues}))
    pair = authority.server("stop")
    settings = {
        "server.workers": "2",
        "management.load_definitions": str(definitions),
        "amqp.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path / "workers", settings=settings) as gateway:
        options = pika.SSLOptions(ssl.create_default_context(cafile=str(authority.file)), "localhost")
        tls = {"port": gateway.ports["amqps"], "ssl_options": options}
        clients = [amqp(gateway, vhost, **more) for vhost in VHOSTS for more in ({}, {}, tls, tls)]
        for client in clients:
            client.channel().queue_declare("defined", passive=True)
        os.kill(gateway.pid, signal.SIGTERM)
        for client in clients:
            closed_by_broker(client)
        assert gateway.terminate() == 0


def test_a_port_that_another_gateway_with_workers_has_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    second = Gateway(tmp_path, settings={"server.workers": "2"}, ports=(gateway.amqp_port, 0))
    with pytest.raises(BrokerFailed, match="taken by another process"), second:
        pass
