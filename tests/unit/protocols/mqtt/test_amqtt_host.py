"""amqtt's plugins behind the gateway: whose answers are whose, and how long the gateway waits for them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from penstock.protocols.mqtt.auth import amqtt_host
from penstock.protocols.mqtt.auth.amqtt_host import AmqttHost
from penstock.router.authorization.identity import Identity

PLUGIN = '''
import threading
from amqtt.plugins.base import BaseTopicPlugin

GO_ON = threading.Event()

class Own(BaseTopicPlugin):
    """A topic is its user's, by the name of the login; one that is slow blocks its thread."""
    async def topic_filtering(self, *, session=None, topic=None, action=None):
        if topic.startswith("slow"):
            assert GO_ON.wait(100)
            return True
        return topic == session.username
'''
GUEST = Identity("guest", client_id="c")


@pytest.fixture
def go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    name = f"plugin_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(PLUGIN)
    (tmp_path / "amqtt.yaml").write_text(f"plugins: {{{name}.Own: {{}}}}")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    yield module.GO_ON
    module.GO_ON.set()
    del sys.modules[name]


@pytest.fixture
def host(tmp_path: Path, go_on: threading.Event) -> Iterator[AmqttHost]:
    host = AmqttHost(str(tmp_path / "amqtt.yaml"))
    yield host
    go_on.set()
    host.close()


def test_clients_with_one_id_in_two_vhosts_have_their_own_answers(host: AmqttHost) -> None:
    for vhost, user in (("/", "anna"), ("other", "bert")):
        host.admit(vhost, "c", host.client("c", user, b"", "peer"))
    for _ in range(2):
        assert host.allow(GUEST, "write", "anna", vhost="/")
        assert not host.allow(GUEST, "write", "bert", vhost="/")
        assert host.allow(GUEST, "write", "bert", vhost="other")
        assert not host.allow(GUEST, "write", "anna", vhost="other")
    assert not host.allow(GUEST, "write", "anna", vhost="third")


def test_a_client_does_not_inherit_cached_answers_of_its_predecessor(host: AmqttHost) -> None:
    host.admit("/", "c", host.client("c", "anna", b"", "peer"))
    assert host.allow(GUEST, "write", "anna", vhost="/")
    before = host.admit("/", "c", host.client("c", "bert", b"", "peer"))
    assert not host.allow(GUEST, "write", "anna", vhost="/")
    host.take_back("/", "c", before)  # the gateway refused it
    assert host.allow(GUEST, "write", "anna", vhost="/")
    assert not host.allow(GUEST, "write", "bert", vhost="/")


async def test_the_will_of_who_is_not_in_yet_is_its_own(host: AmqttHost) -> None:
    host.admit("/", "c", host.client("c", "anna", b"", "peer"))
    comes = host.client("c", "bert", b"", "peer")
    await host.ask_about_will(GUEST, comes, "bert")
    assert not host.allow(GUEST, "write", "bert", vhost="/")
    host.admit("/", "c", comes)
    assert host.knows(GUEST, "/", "write", ["bert"]) and host.allow(GUEST, "write", "bert", vhost="/")


async def test_the_gateway_waits_for_a_plugin_that_hangs_once_and_not_again(
    host: AmqttHost, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(amqtt_host, "_WAIT_EACH_S", 3600.0)
    began = monotonic()
    assert not host.allow(GUEST, "write", "slow/0", vhost="/")
    assert monotonic() - began >= amqtt_host._WAIT_S
    waits: list[float | None] = []
    real = amqtt_host.Future.result
    monkeypatch.setattr(
        amqtt_host.Future,
        "result",
        lambda future, timeout=None: (waits.append(timeout), real(future, timeout))[1],
    )
    for i in range(1, 50):
        assert not host.allow(GUEST, "write", f"slow/{i}", vhost="/")
    assert waits == [0.0] * 49, "the gateway stands still no more"
    monkeypatch.undo()
    assert "'slow/49' is denied now" in caplog.text
    go_on.set()
    topics = [f"slow/{i}" for i in range(50)]
    async with asyncio.timeout(60):
        while not host.knows(GUEST, "/", "write", topics):
            await asyncio.sleep(0.01)
    assert all(host.allow(GUEST, "write", topic, vhost="/") for topic in topics)
