"""Federation between two gateways, by RabbitMQ's parameters and policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from penstock.cli import main
from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api
from tests.support.shovels import Channel, take_from

pytestmark = pytest.mark.penstock_only("this is about the management API of penstock")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("up"), settings={**SETTINGS, "server.name": "up"}) as running:
        yield running


@pytest.fixture(scope="module")
def downstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("down"), settings={**SETTINGS, "server.name": "down"}) as running:
        yield running


@pytest.fixture
def api(downstream: Gateway) -> Iterator[Api]:
    yield from api_of(downstream)


@pytest.fixture
def api_up(upstream: Gateway) -> Iterator[Api]:
    yield from api_of(upstream)


def api_of(gateway: Gateway) -> Iterator[Api]:
    before = Api(gateway)
    yield before
    before.close()
    found = Api(gateway)  # its port is another one after a restart
    for one in found.get("policies"):
        assert found.status("DELETE", f"policies/%2F/{one['name']}") == 204
    for one in found.get("parameters"):
        assert found.status("DELETE", f"parameters/{one['component']}/%2F/{one['name']}") == 204
    until(lambda: found.get("federation-links") == [])
    found.close()


@pytest.fixture
def up(upstream: Gateway) -> Iterator[Channel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", upstream.amqp_port)) as connection:
        yield connection.channel()


@pytest.fixture
def down(downstream: Gateway) -> Iterator[Channel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", downstream.amqp_port)) as connection:
        yield connection.channel()


def federate(api: Api, peer: Gateway, name: str, pattern: str, apply_to: str, **value: Any) -> None:
    """An upstream, and a policy for it, of this name."""
    settings: dict[str, Any] = {
        "uri": f"amqp://guest:guest@127.0.0.1:{peer.amqp_port}",
        "reconnect-delay": 0.1,
    }
    settings |= {key.replace("_", "-"): one for key, one in value.items()}
    answer = api.send("PUT", f"parameters/federation-upstream/%2F/{name}", {"value": settings})
    assert answer.status_code in (201, 204), answer.text
    policy = {"pattern": pattern, "definition": {"federation-upstream": name}, "apply-to": apply_to}
    assert api.status("PUT", f"policies/%2F/{name}", policy) in (201, 204)


def running(api: Api, name: str) -> dict[str, Any]:
    """The links of the upstream of this name, once one runs."""
    found: list[dict[str, Any]] = []

    def runs() -> bool:
        found[:] = [
            one
            for one in api.get("federation-links")
            if one["upstream"] == name and one["status"] == "running"
        ]
        return bool(found)

    until(runs)
    return found[0]


def bindings(api: Api, exchange: str) -> set[str]:
    return {one["routing_key"] for one in api.get(f"exchanges/%2F/{exchange}/bindings/source")}


def test_an_exchange_gets_what_its_bindings_ask_for(
    api: Api, api_up: Api, upstream: Gateway, up: Channel, down: Channel, unique: str
) -> None:
    down.exchange_declare(unique, "topic", durable=True)
    down.queue_declare(unique, durable=True)
    down.queue_bind(unique, unique, "orders.#")
    federate(api, upstream, unique, f"^{unique}$", "exchanges")
    link = running(api, unique)
    assert (link["type"], link["exchange"], link["upstream_exchange"]) == ("exchange", unique, unique)
    assert "guest:guest" not in link["uri"] and link["vhost"] == "/"
    # The exchange was made there, with a queue for what this gateway is bound for.
    until(lambda: bindings(api_up, unique) == {"orders.#"})
    queue = f"federation: {unique} -> down"
    assert queue in [one["name"] for one in api_up.get("queues/%2F")]
    for number, key in enumerate(("orders.eu", "other", "orders.us")):
        up.basic_publish(unique, key, b"%d" % number, pika.BasicProperties(headers={"a": 1}, user_id="guest"))
    got = take_from(down, unique, 2)
    assert [body for _, body in got] == [b"0", b"2"]
    properties = got[0][0]
    (hop,) = properties.headers["x-received-from"]
    assert (hop["exchange"], hop["cluster-name"], hop["vhost"], hop["redelivered"]) == (
        unique,
        "up",
        "/",
        False,
    )
    assert "guest" not in hop["uri"].partition("@")[0].partition(":")[2].partition(":")[2]
    assert properties.headers["a"] == 1 and properties.user_id is None
    # Bindings follow.
    down.queue_bind(unique, unique, "other")
    until(lambda: bindings(api_up, unique) == {"orders.#", "other"})
    down.queue_unbind(unique, unique, "orders.#")
    until(lambda: bindings(api_up, unique) == {"other"})
    up.basic_publish(unique, "orders.eu", b"3")
    up.basic_publish(unique, "other", b"4")
    assert [body for _, body in take_from(down, unique, 1)] == [b"4"]
    # It is over with its policy, and leaves nothing behind.
    assert api.status("DELETE", f"policies/%2F/{unique}") == 204
    until(lambda: queue not in [one["name"] for one in api_up.get("queues/%2F")])
    until(lambda: bindings(api_up, unique) == set())


def test_filters_of_mqtt_ask_the_upstream_too(
    api: Api, api_up: Api, downstream: Gateway, upstream: Gateway, up: Channel, unique: str
) -> None:
    import paho.mqtt.client as paho

    got: list[bytes] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, unique)
    client.on_message = lambda _, __, message: got.append(message.payload)
    client.connect("127.0.0.1", downstream.mqtt_port)
    client.loop_start()
    client.subscribe(f"{unique}/+/state", 1)
    federate(api, upstream, unique, "^amq.topic$", "exchanges")
    until(lambda: f"{unique}.*.state" in bindings(api_up, "amq.topic"))
    up.basic_publish("amq.topic", f"{unique}.a.state", b"on")
    until(lambda: got == [b"on"])
    client.disconnect()
    client.loop_stop()


def test_two_gateways_that_federate_each_other_make_no_loop(
    api: Api, api_up: Api, upstream: Gateway, downstream: Gateway, up: Channel, down: Channel, unique: str
) -> None:
    for channel in (up, down):
        channel.exchange_declare(unique, "fanout", durable=True)
        channel.queue_declare(unique, durable=True)
        channel.queue_bind(unique, unique, "")
    federate(api, upstream, unique, f"^{unique}$", "exchanges", max_hops=5)
    federate(api_up, downstream, unique, f"^{unique}$", "exchanges", max_hops=5)
    running(api, unique), running(api_up, unique)
    until(lambda: bindings(api_up, unique) == {""} == bindings(api, unique))
    # Once for the queue, and once for the other gateway.
    until(lambda: all(len(one.get(f"exchanges/%2F/{unique}/bindings/source")) == 2 for one in (api, api_up)))
    up.basic_publish(unique, "", b"from up")
    down.basic_publish(unique, "", b"from down")
    assert sorted(body for _, body in take_from(up, unique, 2)) == [b"from down", b"from up"]
    assert sorted(body for _, body in take_from(down, unique, 2)) == [b"from down", b"from up"]
    # Both had to pass the links, so what would come back would be here.
    up.basic_publish(unique, "", b"last")
    assert [body for _, body in take_from(down, unique, 1)] == [b"last"]
    assert [body for _, body in take_from(up, unique, 1)] == [b"last"]


def test_a_queue_gives_its_messages_where_they_are_wanted(
    api: Api, api_up: Api, upstream: Gateway, downstream: Gateway, up: Channel, down: Channel, unique: str
) -> None:
    for channel in (up, down):
        channel.queue_declare(unique, durable=True)
    for number in range(20):
        up.basic_publish("", unique, b"%d" % number)
    federate(api, upstream, unique, f"^{unique}$", "queues", prefetch_count=5)
    federate(api_up, downstream, unique, f"^{unique}$", "queues", prefetch_count=5)
    link = running(api, unique)
    running(api_up, unique)
    assert (link["type"], link["queue"], link["upstream_queue"]) == ("queue", unique, unique)
    # Nobody wants any here.
    until(lambda: up.queue_declare(unique, passive=True).method.message_count == 20)
    got: list[tuple[Any, bytes]] = []
    down.basic_consume(unique, lambda _, __, properties, body: got.append((properties, body)), auto_ack=True)

    def all_came() -> bool:
        down.connection.process_data_events(0.05)
        return len(got) == 20

    until(all_came)
    assert [body for _, body in got] == [b"%d" % number for number in range(20)]
    (hop,) = got[0][0].headers["x-received-from"]
    assert (hop["queue"], hop["cluster-name"], hop["visit-count"]) == (unique, "up", 1)


def test_a_set_names_upstreams_and_one_that_is_away_says_why(
    api: Api,
    downstream: Gateway,
    upstream: Gateway,
    down: Channel,
    unique: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    down.exchange_declare(unique, "direct", durable=True)
    there = f"amqp://guest:guest@127.0.0.1:{upstream.amqp_port}"
    url = f"http://guest:guest@127.0.0.1:{api.port}"

    def ctl(*words: str) -> str:
        capsys.readouterr()
        assert main(["rabbitmqctl", "--url", url, "-q", *words]) == 0
        return capsys.readouterr().out

    ctl("set_parameter", "federation-upstream", "near", f'{{"uri": "{there}"}}')
    ctl(
        "set_parameter",
        "federation-upstream",
        "far",
        '{"uri": "amqp://u:hidden@127.0.0.1:1", "reconnect-delay": 0.1}',
    )
    members = f'[{{"upstream": "near", "exchange": "{unique}.there"}}, {{"upstream": "far"}}]'
    ctl("set_parameter", "federation-upstream-set", "both", members)
    ctl("set_policy", unique, f"^{unique}$", '{"federation-upstream-set": "both"}', "--apply-to", "exchanges")
    assert running(api, "near")["upstream_exchange"] == f"{unique}.there"

    def far() -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in api.get("federation-links") if one["upstream"] == "far")
        return found

    until(lambda: far()["faults"] >= 2)
    until(lambda: far()["status"] == "error")
    assert far()["error"].startswith("upstream: no connection to 127.0.0.1:1:")
    shown = ctl("federation_status", "--only-down")
    assert "far" in shown and "near" not in shown and "hidden" not in shown
    assert "hidden" not in ctl("list_parameters")
    near = running(api, "near")
    ctl("restart_federation_link", near["id"])
    running(api, "near")
    assert api.status("GET", "federation-links/%2F/state/down") == 200
    metrics = api.client.get(f"http://127.0.0.1:{downstream.ports['metrics']}/metrics").text
    assert f'penstock_link_up{{kind="federation",vhost="/",link="exchange {unique} from near"}} 1' in metrics


def test_the_type_of_exchange_that_rabbitmq_makes_here_is_a_fanout(down: Channel, unique: str) -> None:
    arguments = {"x-max-hops": 1, "x-downstream-name": "rabbit@b", "x-downstream-vhost": "/"}
    down.exchange_declare(
        unique, "x-federation-upstream", internal=True, auto_delete=True, arguments=arguments
    )
    down.queue_declare(unique)
    down.queue_bind(unique, unique, "")
    down.exchange_bind(unique, "amq.topic", f"{unique}.#")
    down.basic_publish("amq.topic", f"{unique}.a", b"1")
    assert [body for _, body in take_from(down, unique, 1)] == [b"1"]
    down.queue_delete(unique)


def test_mistakes_are_refused(api: Api, unique: str) -> None:
    def put(component: str, value: Any) -> str:
        answer = api.send("PUT", f"parameters/{component}/%2F/{unique}", {"value": value})
        assert answer.status_code == 400
        return str(answer.json()["reason"])

    assert 'Key "uri" not found' in put("federation-upstream", {"max-hops": 2})
    assert "max-hops should be a number" in put("federation-upstream", {"uri": "amqp://", "max-hops": "x"})
    assert "Unrecognised terms [hops]" in put("federation-upstream", {"uri": "amqp://", "hops": 1})
    assert 'may not connect to vhost "nowhere"' in put("federation-upstream", {"uri": "amqp:///nowhere"})
    assert "array of objects" in put("federation-upstream-set", {"upstream": "a"})
    assert 'Key "upstream" not found' in put("federation-upstream-set", [{"uri": "amqp://"}])
    policy = {"pattern": "x", "definition": {"federation-upstream": "a", "federation-upstream-set": "b"}}
    assert "together" in api.send("PUT", f"policies/%2F/{unique}", policy).text


def test_upstreams_and_their_links_come_back_after_a_kill(
    api: Api, upstream: Gateway, downstream: Gateway, up: Channel, unique: str
) -> None:
    definitions = {
        "parameters": [
            {
                "vhost": "/",
                "component": "federation-upstream",
                "name": unique,
                "value": {"uri": f"amqp://127.0.0.1:{upstream.amqp_port}", "reconnect-delay": 0.1},
            }
        ],
        "exchanges": [{"vhost": "/", "name": unique, "type": "fanout", "durable": True}],
        "queues": [{"vhost": "/", "name": unique, "durable": True}],
        "bindings": [
            {
                "vhost": "/",
                "source": unique,
                "destination": unique,
                "destination_type": "queue",
                "routing_key": "",
            }
        ],
        "policies": [
            {
                "vhost": "/",
                "name": unique,
                "pattern": f"^{unique}$",
                "definition": {"federation-upstream-set": "all"},
                "apply-to": "exchanges",
            }
        ],
    }
    assert api.status("POST", "definitions", definitions) == 204
    running(api, unique)
    downstream.kill9()
    # It waits at the upstream meanwhile.
    for number in range(3):
        up.basic_publish(unique, "", b"%d" % number)
    downstream.start()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", downstream.amqp_port)) as connection:
        assert [body for _, body in take_from(connection.channel(), unique, 3)] == [b"0", b"1", b"2"]
