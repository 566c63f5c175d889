"""`penstock log move`: a vhost with everything in it becomes another worker's, and nothing else does."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import paho.mqtt.client as paho
import pika
import pytest

import penstock
from penstock.log_core.files.files import FAILPOINT_STATUS
from penstock.sdk.producing.half import Question
from tests.support.brokers import ROOT, BrokerFailed, Gateway, free_port
from tests.support.hooks import LOCAL, Hooks
from tests.support.management import Api
from tests.support.receiver import Receiver
from tests.support.workers import WAIT_S, amqp, until

pytestmark = [pytest.mark.penstock_only("this is about penstock's processes")]

VHOSTS = ("/", "b", "c")
COUNT = 300


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {**LOCAL, "native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path / "moved", settings=settings) as gateway:
        with closing(Api(gateway)) as api:
            for vhost in VHOSTS[1:]:
                assert api.status("PUT", f"vhosts/{vhost}", {"description": f"this is {vhost}"}) == 201
        yield gateway


def moved(gateway: Gateway, *words: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "log", "move", str(gateway.data_dir), *words],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "PENSTOCK_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def fill(gateway: Gateway, vhost: str) -> None:
    """A queue with messages, a third of them acknowledged; a session with messages; a retained one."""
    session = paho.Client(paho.CallbackAPIVersion.VERSION2, "session", clean_session=False)
    session.username_pw_set(f"{vhost}:guest", "guest")
    subscribed: list[bool] = []
    session.on_connect = lambda client, *_: client.subscribe("t/#", 1)
    session.on_subscribe = lambda *_: subscribed.append(True)
    session.connect("127.0.0.1", gateway.mqtt_port)
    session.loop_start()
    until(lambda: subscribed, gateway)
    session.disconnect()
    session.loop_stop()
    publisher = paho.Client(paho.CallbackAPIVersion.VERSION2, "publisher")
    publisher.username_pw_set(f"{vhost}:guest", "guest")
    publisher.connect("127.0.0.1", gateway.mqtt_port)
    publisher.loop_start()
    publisher.publish("t/1", f"session of {vhost}".encode(), 1).wait_for_publish(WAIT_S)
    publisher.publish("kept", f"retained in {vhost}".encode(), 1, retain=True).wait_for_publish(WAIT_S)
    publisher.disconnect()
    publisher.loop_stop()
    with closing(amqp(gateway, vhost)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "amq.topic", "bound.#")
        for number in range(COUNT):
            body = f"{vhost} {number}".encode()
            channel.basic_publish("amq.topic", "bound.x", body, pika.BasicProperties(delivery_mode=2))
        for _ in range(COUNT // 3):
            method, _, _ = channel.basic_get("q")
            channel.basic_ack(method.delivery_tag)


def check(gateway: Gateway, vhost: str) -> None:
    """All of it is there, with its bindings."""
    with closing(amqp(gateway, vhost)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "bound.y", b"last", mandatory=True)
        found = []
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.append(got[2])
        assert found == [*(f"{vhost} {number}".encode() for number in range(COUNT // 3, COUNT)), b"last"]
    got_by_mqtt: list[bytes] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "session", clean_session=False)
    client.username_pw_set(f"{vhost}:guest", "guest")
    client.on_connect = lambda client, *_: client.subscribe("kept", 1)
    client.on_message = lambda client, data, message: got_by_mqtt.append(message.payload)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    until(lambda: len(got_by_mqtt) >= 2, gateway)
    client.disconnect()
    client.loop_stop()
    assert sorted(got_by_mqtt) == [f"retained in {vhost}".encode(), f"session of {vhost}".encode()]


def test_everything_in_a_vhost_moves_and_nothing_else(gateway: Gateway) -> None:
    for vhost in VHOSTS:
        fill(gateway, vhost)
    refused = moved(gateway, "--vhost", "b", "--worker", "1")
    assert refused.returncode == 1 and "pid" in refused.stderr, "the gateway runs"
    gateway.terminate()
    done = moved(gateway, "--vhost", "b", "--worker", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vhost 'b' belongs to worker 1 from the next start on")
    refused = moved(gateway, "--vhost", "c", "--worker", "1")
    assert refused.returncode == 1 and "worker 1 has vhosts: 'b'" in refused.stderr
    refused = moved(gateway, "--vhost", "b", "--worker", "0")
    assert refused.returncode == 1 and "name one from 1 to 63" in refused.stderr
    refused = moved(gateway, "--vhost", "nowhere", "--worker", "2")
    assert refused.returncode == 1 and "there is no vhost 'nowhere'" in refused.stderr
    with pytest.raises(BrokerFailed, match=r"set server\.workers to 2"):
        gateway.start()
    gateway.settings["server.workers"] = "3"
    gateway.start()
    with closing(Api(gateway)) as api:
        assert [(v["name"], v["worker"], v["description"]) for v in api.get("vhosts")] == [
            ("/", 0, ""),
            ("b", 1, "this is b"),
            ("c", 0, "this is c"),
        ]
        assert [(one["vhost"], one["messages"]) for one in api.get("queues?name=^q$&use_regex=true")] == [
            (vhost, COUNT - COUNT // 3) for vhost in VHOSTS
        ]
    # The worker that was there and is not needed any more makes room, here for one that has '/'.
    gateway.terminate()
    done = moved(gateway, "--vhost", "/", "--worker", "2", "-o", "json")
    assert done.returncode == 0 and "worker-002.replaced-" in done.stdout, done
    gateway.start()
    for vhost in VHOSTS:
        check(gateway, vhost)
    with closing(Api(gateway)) as api:
        assert [vhost["worker"] for vhost in api.get("vhosts")] == [2, 1, 0]


async def test_waiting_messages_streams_and_webhooks_move_too_after_a_killed_move(
    gateway: Gateway, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    url = f"penstock://guest:guest@{gateway.settings['native.listen']}/b"
    asked = asyncio.Event()

    def decide(question: Question) -> bool:
        asked.set()
        return question.body == b"half"

    with Receiver() as receiver:
        due = int(time.time() * 1000) + 6000
        with closing(amqp(gateway, "b")) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name, arguments in (("late", {}), ("hooked", {}), ("stream", {"x-queue-type": "stream"})):
                channel.queue_declare(name, durable=True, arguments=arguments)
            persistent = pika.BasicProperties(delivery_mode=2, headers={"x-penstock-deliver-at": due})
            channel.basic_publish("", "late", b"waits", persistent)
            for number in range(20):
                channel.basic_publish("", "stream", b"%d" % number)
        hook = hooks_of(gateway)
        hook.client.base_url = hook.client.base_url.copy_with(path="/v1/vhosts/b/")
        hook.put("hook", source={"queue": "hooked"}, url=receiver.url)
        async with penstock.connect(url) as client:
            group = penstock.Group("g", lambda question: None, check_after_s=0.1, max_checks=1000)
            async with client.producer("t", group=group) as producer:
                await producer.prepare(b"half")
        gateway.terminate()
        for step in ("move.copied", "move.replaced", "move.named"):
            died = moved(gateway, "--vhost", "b", "--worker", "1", failpoint=step)
            assert died.returncode == FAILPOINT_STATUS, died
            gateway.start()  # nothing has moved
            with closing(Api(gateway)) as api:
                assert {vhost["name"]: vhost["worker"] for vhost in api.get("vhosts")}["b"] == 0
            gateway.terminate()
            copy = gateway.data_dir / "worker-001.copy"
            assert copy.exists() == (step != "move.named")
            if copy.exists():
                again = moved(gateway, "--vhost", "b", "--worker", "1")
                assert again.returncode == 1 and "remove it" in again.stderr, again
                shutil.rmtree(copy)
        assert moved(gateway, "--vhost", "b", "--worker", "1").returncode == 0
        gateway.settings["server.workers"] = "2"
        gateway.start()
        with closing(amqp(gateway, "b")) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=100)
            numbers = channel.consume(
                "stream", arguments={"x-stream-offset": "first"}, inactivity_timeout=WAIT_S
            )
            assert [next(numbers)[2] for _ in range(20)] == [b"%d" % number for number in range(20)]
            channel.cancel()
            channel.basic_publish("", "hooked", b"pushed", pika.BasicProperties(delivery_mode=2))
            late = channel.consume("late", auto_ack=True, inactivity_timeout=WAIT_S)
            assert next(late)[2] == b"waits" and time.time() * 1000 >= due
        assert receiver.wait_count(1)[0].body == b"pushed"
        async with penstock.connect(url) as client:
            group = penstock.Group("g", decide, check_after_s=0.1, check_each_s=0.1)
            async with (
                client.producer("t", group=group) as producer,
                client.reader("t", start="earliest") as reader,
            ):
                await producer.send(b"whole")
                found = {message.body for message in await reader.receive_many(1, WAIT_S)}
                while found != {b"whole", b"half"}:
                    got = await reader.receive_many(1, WAIT_S)
                    assert got, (found, asked.is_set())
                    found |= {message.body for message in got}
