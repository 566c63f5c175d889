"""Shovels between vhosts and gateways: what RabbitMQ's parameters ask for, and what the API says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api
from tests.support.shovels import Channel, fill, put, state, take

pytestmark = pytest.mark.penstock_only("this is about the management API of penstock")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Gateway]:
    server = authority.server()
    settings = {
        **SETTINGS,
        "tls.cert_file": str(server.cert),
        "tls.key_file": str(server.key),
        "amqp.tls_listen": "127.0.0.1:0",
        "links.max_links": "4",
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


def test_messages_move_in_order_with_their_properties(
    gateway: Gateway, api: Api, channel: Channel, unique: str
) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    fill(channel, source, 300, headers={"a": 1}, message_id="m", delivery_mode=2)
    put(
        api,
        unique,
        src_uri="amqp://",
        src_queue=source,
        src_prefetch_count=20,
        dest_uri=f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}",
        dest_queue=target,
        dest_add_forward_headers=True,
    )
    got = take(channel, target, 300)
    assert [body for _, body in got] == [b"%d" % number for number in range(300)]
    properties = got[0][0]
    assert (properties.message_id, properties.delivery_mode, properties.headers["a"]) == ("m", 2, 1)
    (hop,) = properties.headers["x-shovelled"]
    assert hop["shovel-name"] == unique and hop["shovel-type"] == "dynamic" and hop["src-queue"] == source
    assert "guest:guest" not in repr(hop)

    until(lambda: state(api, unique)["forwarded"] == 300)
    shown = state(api, unique)
    assert shown["state"] == "running" and shown["dest_queue"] == target and shown["pending"] == 0
    assert shown["dest_uri"].startswith("amqp://guest:******@")
    assert unique in [one["name"] for one in api.get("shovels/%2F")]
    metrics = api.client.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics").text
    assert f'penstock_link_forwarded_total{{kind="shovel",vhost="/",link="{unique}"}} 300' in metrics
    # Nothing is left at the source, and nothing comes again.
    assert channel.queue_declare(source, passive=True).method.message_count == 0
    assert api.status("DELETE", f"shovels/vhost/%2F/{unique}") == 204
    assert api.status("GET", f"parameters/shovel/%2F/{unique}") == 404


def test_an_exchange_is_shovelled_by_tls_with_the_keys_of_its_messages(
    gateway: Gateway, api: Api, channel: Channel, authority: Authority, unique: str
) -> None:
    target = f"{unique}.copy"
    channel.exchange_declare(target, "topic", durable=True)
    channel.queue_declare(unique, durable=True)
    channel.queue_bind(unique, target, "orders.#")
    uri = f"amqps://guest:guest@localhost:{gateway.ports['amqps']}?cacertfile={authority.file}"
    put(
        api,
        unique,
        src_uri="amqp:///%2F",
        src_exchange="amq.topic",
        src_exchange_key="orders.*",
        dest_uri=uri,
        dest_exchange=target,
        ack_mode="on-publish",
    )
    until(lambda: state(api, unique)["state"] == "running")
    channel.basic_publish("amq.topic", "orders.eu", b"1")
    channel.basic_publish("amq.topic", "other.eu", b"2")
    channel.basic_publish("amq.topic", "orders.us", b"3")
    assert [body for _, body in take(channel, unique, 2)] == [b"1", b"3"]


def test_a_shovel_goes_when_it_has_moved_what_was_there(api: Api, channel: Channel, unique: str) -> None:
    fill(channel, unique, 30)
    put(
        api,
        unique,
        src_uri="amqp://",
        src_queue=unique,
        src_delete_after="queue-length",
        src_prefetch_count=7,
        dest_uri="amqp://",
        dest_queue=f"{unique}.out",
    )
    until(lambda: api.status("GET", f"shovels/vhost/%2F/{unique}") == 404)
    assert len(take(channel, f"{unique}.out", 30)) == 30
    fill(channel, unique, 5)
    put(
        api,
        unique,
        src_uri="amqp://",
        src_queue=unique,
        src_delete_after=3,
        ack_mode="no-ack",
        src_prefetch_count=1,
        dest_uri="amqp://",
        dest_queue=f"{unique}.out",
    )
    until(lambda: api.status("GET", f"shovels/vhost/%2F/{unique}") == 404)
    assert [body for _, body in take(channel, f"{unique}.out", 3)] == [b"0", b"1", b"2"]


def test_one_that_cannot_connect_says_why_and_tries_again(
    api: Api, channel: Channel, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://guest:guest@127.0.0.1:{api.port}"
    away = "amqp://u:hidden@127.0.0.1:1"
    settings = json.dumps(
        {
            "src-uri": "amqp://",
            "src-queue": unique,
            "reconnect-delay": 0.05,
            "dest-uri": away,
            "dest-queue": "x",
        }
    )
    assert main(["rabbitmqctl", "--url", url, "set_parameter", "shovel", unique, settings]) == 0
    until(lambda: state(api, unique)["faults"] >= 3)
    shown = state(api, unique)
    assert shown["state"] in ("terminated", "starting")
    assert shown["reason"].startswith("destination: no connection to 127.0.0.1:1:")
    capsys.readouterr()
    assert main(["rabbitmqctl", "--url", url, "-q", "shovel_status"]) == 0
    assert f"{unique}\t/\tdynamic\t" in capsys.readouterr().out
    assert main(["shovels", "list", "--url", url]) == 0
    assert "no connection to 127.0.0.1:1" in capsys.readouterr().out
    assert main(["top", "--once", "--url", url]) == 0
    shown_there = capsys.readouterr().out
    assert unique in shown_there and "no connection to 127.0.0.1:1" in shown_there
    assert main(["rabbitmqctl", "--url", url, "list_parameters"]) == 0
    listed = capsys.readouterr().out
    assert unique in listed and "hidden" not in listed
    # It begins at once when its parameter is put right.
    fill(channel, unique, 1)
    put(api, unique, src_uri="amqp://", src_queue=unique, dest_uri="amqp://", dest_queue=f"{unique}.out")
    assert take(channel, f"{unique}.out", 1)[0][1] == b"0"
    assert main(["rabbitmqctl", "--url", url, "restart_shovel", unique]) == 0
    assert main(["rabbitmqctl", "--url", url, "clear_parameter", "shovel", unique]) == 0
    assert main(["rabbitmqctl", "--url", url, "delete_shovel", unique]) != 0


def test_mistakes_are_refused(api: Api, unique: str) -> None:
    answer = api.send("PUT", f"parameters/shovel/%2F/{unique}", {"value": {"src-queue": "a"}})
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith(
        'Validation failed\n\nKey "src-uri" not found in <<"shovel">>\n'
    )
    answer = api.send("PUT", f"parameters/federation/%2F/{unique}", {"value": {}})
    assert "component federation not found" in answer.json()["reason"]
    value = {"src-uri": "amqp:///nowhere", "src-queue": "a", "dest-uri": "amqp://"}
    answer = api.send("PUT", f"parameters/shovel/%2F/{unique}", {"value": value})
    assert 'may not connect to vhost \\"nowhere\\"' in answer.text
    value["src-uri"] = "amqp://"
    for number in range(4):
        assert api.status("PUT", f"parameters/shovel/%2F/{unique}{number}", {"value": value}) == 201
    assert "links.max_links is 4" in api.send("PUT", f"parameters/shovel/%2F/{unique}", {"value": value}).text


def test_shovels_are_kept_and_go_with_definitions(tmp_path: Path, unique: str) -> None:
    value = {"src-uri": "amqp://", "src-queue": "in", "dest-uri": "amqp://guest:guest@", "dest-queue": "out"}
    with Gateway(tmp_path, settings=SETTINGS) as gateway:
        api = Api(gateway)
        assert api.status("PUT", f"parameters/shovel/%2F/{unique}", {"value": value}) == 201
        definitions = api.get("definitions")
        assert {"vhost": "/", "component": "shovel", "name": unique, "value": value} in definitions[
            "parameters"
        ]
        assert "guest:guest" not in api.client.get("parameters").text
        api.close()
        gateway.kill9()
        gateway.start()
        api = Api(gateway)
        until(lambda: state(api, unique)["state"] == "running")
        assert api.status("DELETE", f"parameters/shovel/%2F/{unique}") == 204
        assert api.status("POST", "definitions", {"parameters": definitions["parameters"]}) == 204
        until(lambda: state(api, unique)["state"] == "running")
        # The same once more changes nothing, and what is wrong in it is told before anything is done.
        began = state(api, unique)["timestamp"]
        assert api.status("POST", "definitions", {"parameters": definitions["parameters"]}) == 204
        assert state(api, unique)["timestamp"] == began
        wrong = {
            "vhost": "/",
            "component": "shovel",
            "name": "w",
            "value": {**value, "src-protocol": "local"},
        }
        answer = api.send("POST", "definitions", {"parameters": [wrong]})
        assert answer.status_code == 400 and "local is not supported" in answer.json()["reason"]
        assert api.status("DELETE", "vhosts/%2F") == 204
        assert api.get("shovels") == []
        assert "guest:guest" not in gateway.log_text()
        api.close()
