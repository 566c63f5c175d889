"""Connections and MQTT sessions in the management API: shown, closed, ended."""

from __future__ import annotations

import threading
from contextlib import closing
from urllib.parse import quote

import paho.mqtt.client as paho
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


def test_connections_are_shown_and_closed(api: Api, gateway: Gateway) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, client_properties={"connection_name": "me"}
    )
    connection = pika.BlockingConnection(parameters)
    connection.channel()
    (mine,) = [c for c in api.get("connections") if c.get("user_provided_name") == "me"]
    assert (mine["protocol"], mine["user"], mine["vhost"], mine["channels"]) == (
        "AMQP 0-9-1",
        "guest",
        "/",
        1,
    )
    path = "connections/" + mine["name"].replace(" ", "%20").replace(">", "%3E")
    assert api.get(path + "/channels")[0]["number"] == 1
    answer = api.client.delete(path, headers={"X-Reason": "go away"})
    assert answer.status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go away") as closed:
        connection.process_data_events(time_limit=60)
    assert closed.value.reply_code == 320
    assert until(lambda: api.status("GET", path) == 404)


def test_mqtt_clients_are_connections_and_their_sessions_queues(api: Api, gateway: Gateway) -> None:
    subscribed = threading.Event()
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id="thermo", protocol=paho.MQTTv5, reconnect_on_failure=False
    )
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    client.subscribe("a/+", qos=1)
    assert subscribed.wait(60)
    (one,) = [c for c in api.get("connections") if c["variable_map"].get("client_id") == "thermo"]
    assert one["protocol"] == "MQTT 5-0"
    (session,) = [q for q in api.get("queues/%2F") if q["name"] == "mqtt-subscription-thermoqos1"]
    assert session["consumers"] == 1
    (consumer,) = [c for c in api.get("consumers") if c["consumer_tag"] == "a/+"]
    assert consumer["channel_details"]["connection_name"] == one["name"]
    assert consumer["queue"] == {"name": "mqtt-subscription-thermoqos1", "vhost": "/"}
    shown = api.get("queues/%2F/mqtt-subscription-thermoqos1")
    assert [c["consumer_tag"] for c in shown["consumer_details"]] == ["a/+"]
    subscribed.clear()
    client.subscribe("$share/g/b/#", qos=1)
    assert subscribed.wait(60)
    for name in ("mqtt-subscription-thermoqos1", "mqtt-subscription-$share/g/b/#qos1"):
        shown = api.get(f"queues/%2F/{quote(name, safe='')}")
        assert (shown["name"], shown["consumers"], shown["messages_dropped"]) == (name, 1, 0)
        assert [c["queue"]["name"] for c in shown["consumer_details"]] == [name]
    assert api.status("GET", "queues/%2F/mqtt-subscription-$share%2Fg%2Fotherqos1") == 404
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()


def test_an_administrator_ends_the_session_of_another_user(api: Api, gateway: Gateway) -> None:
    """Whether its client is connected or away; nobody else may."""
    path = "queues/%2F/mqtt-subscription-a%2Fwardqos1"
    for user, tags in (("monitor", "monitoring"), ("admin", "administrator")):
        assert api.status("PUT", f"users/{user}", {"password": user, "tags": tags}) in (201, 204)
        grant = dict.fromkeys(("configure", "write", "read"), ".*")
        assert api.status("PUT", f"permissions/%2F/{user}", grant) in (201, 204)
    assert api.status("DELETE", path) == 404
    for is_connected in (True, False):
        connected, gone = threading.Event(), threading.Event()
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, "a/ward", clean_session=False, reconnect_on_failure=False
        )
        client.on_connect = lambda *_, connected=connected: connected.set()
        client.on_disconnect = lambda *_, gone=gone: gone.set()
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        assert connected.wait(60)
        client.subscribe("ward", qos=1)  # without one it has no queue
        assert until(lambda: api.status("GET", path) == 200)
        if not is_connected:
            client.disconnect()
            assert gone.wait(60)
            assert until(lambda: api.get(path)["consumers"] == 0)
        with closing(Api(gateway, "monitor", "monitor")) as monitor:
            assert monitor.status("DELETE", path) == 401
        with closing(Api(gateway, "admin", "admin")) as admin:
            if is_connected:
                assert admin.status("DELETE", f"{path}?if-unused=true") == 400
            assert admin.status("DELETE", path) == 204
        assert gone.wait(60)
        assert api.status("GET", path) == 404
        client.loop_stop()
