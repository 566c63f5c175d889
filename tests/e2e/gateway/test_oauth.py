"""Logins by tokens of OAuth 2 with real clients: who gets in, what scopes allow, and the end of the time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pika.adapters.blocking_connection import BlockingChannel
from proton.utils import BlockingConnection, ConnectionClosed
from rabbitmq_amqp_python_client import (
    ClassicQueueSpecification,
    Environment,
    Message,
    OAuth2Options,
    ValidationCodeException,
)

from penstock.errors import PenstockError
from penstock.protocols.amqp10.codec.performatives import Open, SaslOutcome
from penstock.sync import connect as sdk_connect
from tests.support.amqp10_login import login
from tests.support.brokers import ROOT, Gateway
from tests.support.issuer import Issuer
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS
from tests.support.node_programs import packages as packages
from tests.support.node_programs import run
from tests.support.tokens import AUDIENCE, ISSUER, jwk, key_set, token

pytestmark = pytest.mark.penstock_only("RabbitMQ needs a plug-in and another configuration for this")

ALL = "broker.configure:*/* broker.read:*/* broker.write:*/*"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    issuer = Issuer(tmp_path_factory.mktemp("issuer"))
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Gateway]:
    settings = {
        **SETTINGS,
        "http.listen": "127.0.0.1:0",
        "native.listen": "127.0.0.1:0",
        "oauth.issuer": ISSUER,
        "oauth.resource_server_id": AUDIENCE,
        "oauth.jwks_url": issuer.url,
        "oauth.ca_file": str(issuer.authority.file),
    }
    with Gateway(tmp_path_factory.mktemp("oauth"), settings=settings) as running:
        yield running


def amqp(gateway: Gateway, secret: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            gateway.amqp_port,
            credentials=pika.PlainCredentials("", secret),
            blocked_connection_timeout=60,
        )
    )


def channel(gateway: Gateway, secret: str) -> BlockingChannel:
    return amqp(gateway, secret).channel()


class Mqtt:
    """A client of MQTT 5 with a token, and what it was told."""

    def __init__(self, gateway: Gateway, secret: str, client_id: str = "") -> None:
        self.connected: SimpleQueue[Any] = SimpleQueue()
        self.disconnected: SimpleQueue[Any] = SimpleQueue()
        self.subscribed: SimpleQueue[Any] = SimpleQueue()
        self.messages: SimpleQueue[bytes] = SimpleQueue()
        client = self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        client.username_pw_set("", secret)
        client.on_connect = lambda *told: self.connected.put(told[3])
        client.on_disconnect = lambda *told: self.disconnected.put(told[3])
        client.on_subscribe = lambda *told: self.subscribed.put(told[3])
        client.on_message = lambda _client, _data, message: self.messages.put(message.payload)
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_scopes_are_permissions_in_amqp(gateway: Gateway) -> None:
    everything = channel(gateway, token(ALL))
    everything.queue_declare("orders-eu")
    everything.queue_declare("invoices")
    some = token("broker.read:%2F/orders-* broker.write:%2F/amq.default broker.write:%2F/amq.topic/eu.*")
    one = channel(gateway, some)
    one.confirm_delivery()
    one.basic_publish("", "orders-eu", b"1")
    one.basic_publish("amq.topic", "eu.de", b"2")
    assert one.basic_get("orders-eu", auto_ack=True)[2] == b"1"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        one.basic_get("invoices")
    assert refused.value.reply_code == 403
    one = one.connection.channel()
    one.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        one.basic_publish("amq.topic", "us.ny", b"3")
    assert refused.value.reply_code == 403
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(gateway, token(ALL, iss="https://else.test/"))
    for each in (one, everything):
        each.connection.close()


def test_a_new_secret_of_the_same_user_goes_on_with_what_it_allows(gateway: Gateway) -> None:
    one = channel(gateway, token(ALL))
    one.queue_declare("renewed")
    one.connection.update_secret(token("broker.read:*/*"), "renewal")
    one.basic_get("renewed")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        one.queue_declare("another")
    assert refused.value.reply_code == 403
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        one.connection.update_secret(token(ALL, user="eve"), "another user")
    assert closed.value.reply_code == 530


def test_a_new_token_by_amqp_1_0_goes_on_with_what_it_allows(gateway: Gateway) -> None:
    environment = Environment(
        uri=f"amqp://127.0.0.1:{gateway.amqp_port}", oauth2_options=OAuth2Options(token(ALL))
    )
    connection = environment.connection()
    connection.dial()
    management = connection.management()
    management.declare_queue(ClassicQueueSpecification(name="by-amqp-1-0"))
    sender = connection.publisher("/queues/by-amqp-1-0")
    sender.publish(Message(body=b"m"))
    connection.refresh_token(token("broker.read:*/* broker.write:*/amq.default/by-*"))
    sender.publish(Message(body=b"m"))
    assert management.queue_info("by-amqp-1-0").message_count == 2
    with pytest.raises(ValidationCodeException, match="403"):
        management.declare_queue(ClassicQueueSpecification(name="another"))
    with pytest.raises(ValidationCodeException, match="403"):
        connection.refresh_token(token(ALL, user="eve"))
    with pytest.raises(ValidationCodeException, match="403"):
        connection.refresh_token("no token")
    connection.refresh_token(token(ALL))
    management.delete_queue("by-amqp-1-0")
    environment.close()


@pytest.mark.usefixtures("packages")
def test_xoauth2_of_rhea(gateway: Gateway) -> None:
    run("amqp10_token.js", str(gateway.amqp_port), token(ALL))


def test_oauthbearer_lets_a_token_in_and_says_why_it_refuses_one(gateway: Gateway) -> None:
    def responses(secret: str) -> list[bytes]:
        return [f"n,,\1host=localhost\1auth=Bearer {secret}\1\1".encode(), b"\1"]

    with login(gateway.amqp_port, "OAUTHBEARER", responses(token(ALL))) as (challenges, first):
        assert not challenges
        assert isinstance(first, Open)
    late = token(ALL, for_s=-3600)
    with login(gateway.amqp_port, "OAUTHBEARER", responses(late)) as (challenges, first):
        assert challenges == [b'{"status":"invalid_token"}']
        assert first == SaslOutcome(1)


def test_a_password_is_no_token_of_oauthbearer(gateway: Gateway) -> None:
    with login(gateway.amqp_port, "OAUTHBEARER", [b"n,a=guest,\1auth=Bearer guest\1\1"]) as (_, first):
        assert first == SaslOutcome(1)


def test_a_connection_of_amqp_1_0_ends_with_the_time_of_its_token(gateway: Gateway) -> None:
    secret = token(ALL, for_s=5)
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{gateway.amqp_port}",
        timeout=LIMIT_S,
        user="ann",
        password=secret,
        allowed_mechs="PLAIN",
    )
    with pytest.raises(ConnectionClosed, match="token"):
        connection.wait(lambda: False, timeout=LIMIT_S)


def test_scopes_are_permissions_in_mqtt_http_and_natively(gateway: Gateway) -> None:
    some = token("broker.read:%2F/*/plant.* broker.write:%2F/*/plant.* broker.configure:%2F/mqtt-*")
    mqtt = Mqtt(gateway, some)
    assert not mqtt.connected.get(timeout=60).is_failure
    mqtt.client.subscribe([("plant/+", paho.SubscribeOptions(1)), ("office/+", paho.SubscribeOptions(1))])
    assert [code.is_failure for code in mqtt.subscribed.get(timeout=60)] == [False, True]
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    with httpx.Client(base_url=base, timeout=60) as http:
        for key, secret, status in (
            ("plant.x", some, 200),
            ("office.x", some, 403),
            ("plant.x", token(ALL, for_s=-1), 401),
        ):
            answer = http.post(
                f"exchanges/amq.topic/messages?routing_key={key}",
                content=b"7",
                headers={"authorization": f"Bearer {secret}", "content-type": "text/plain"},
            )
            assert answer.status_code == status, answer.text
    assert mqtt.messages.get(timeout=60) == b"7"
    mqtt.close()
    refused = Mqtt(gateway, token(ALL, aud="else"))
    assert refused.connected.get(timeout=60).is_failure
    refused.close()
    address = f"penstock://x:{some}@127.0.0.1:{gateway.ports['native']}"
    with sdk_connect(address) as client, pytest.raises(PenstockError):
        client.admin.create_topic("not-allowed")


def test_tags_let_into_the_management_api(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['management']}/api/"
    for scopes, path, status in (
        ("broker.tag:administrator", "users", 200),
        ("broker.tag:monitoring", "overview", 200),
        ("broker.tag:monitoring", "users", 401),
        ("broker.tag:management broker.read:%2F/*", "queues/%2F", 200),
        ("broker.tag:management", "queues/%2F", 401),
        ("broker.read:*/*", "overview", 401),
    ):
        secret = token(scopes)
        for headers, auth in (({"authorization": f"Bearer {secret}"}, None), ({}, ("", secret))):
            answer = httpx.get(base + path, headers=headers, auth=auth, timeout=60)
            assert answer.status_code == status, (scopes, path, answer.text)
    whoami = httpx.get(
        base + "whoami",
        headers={"authorization": f"Bearer {token('broker.tag:management')}"},
        timeout=LIMIT_S,
    )
    assert whoami.json()["name"] == "ann"


def test_connections_and_polls_end_with_the_time_of_the_token(gateway: Gateway) -> None:
    everything = channel(gateway, token(ALL))
    everything.queue_declare("waits")
    began = time.monotonic()
    amqp(gateway, token(ALL)).close()
    lasts_s = 6 + int(10 * (time.monotonic() - began))  # what follows has to log in before the end
    short = token(ALL, for_s=lasts_s)
    ends = time.time() + lasts_s
    one = amqp(gateway, short)
    renewed = amqp(gateway, short)
    renewed.update_secret(token(ALL), "renewal")
    mqtt = Mqtt(gateway, short)
    assert not mqtt.connected.get(timeout=60).is_failure
    url = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/queues/waits/pull"
    bearer = {"authorization": f"Bearer {short}"}
    answer = httpx.post(url, json={"wait_ms": 60_000}, headers=bearer, timeout=90)
    assert answer.status_code == 401
    assert time.time() >= ends - 1  # the claim is in whole seconds
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        one.process_data_events(60)
        one.process_data_events(60)
    assert closed.value.reply_code == 320
    assert "token" in closed.value.reply_text
    assert mqtt.disconnected.get(timeout=60).value == 0x98
    mqtt.close()
    assert renewed.channel().is_open
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(gateway, short)
    for each in (everything.connection, renewed):
        each.close()


def test_keys_are_fetched_again_for_one_that_is_not_known(gateway: Gateway, issuer: Issuer) -> None:
    issuer.keys = key_set(jwk("one"), jwk("two", "RS256"))
    amqp(gateway, token(ALL, key="two", algorithm="RS256")).close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"oauth.issuer": ISSUER}, "oauth.resource_server_id"),
        ({"oauth.resource_server_id": "x"}, "oauth.resource_server_id"),
        ({"oauth.issuer": ISSUER, "oauth.resource_server_id": "x"}, "oauth.jwks_file"),
        (
            {"oauth.issuer": ISSUER, "oauth.resource_server_id": "x", "oauth.jwks_url": "http://a/"},
            "oauth.jwks_url",
        ),
        (
            {"oauth.issuer": ISSUER, "oauth.resource_server_id": "x", "oauth.jwks_file": "/none"},
            "oauth.jwks_file",
        ),
    ],
)
def test_a_mistake_ends_the_start_and_is_named(settings: dict[str, str], key: str, tmp_path: Path) -> None:
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path), *words]
    words += ["--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT / "src")}, check=False
    )
    assert done.returncode == 2, done.stderr
    assert key in done.stderr
