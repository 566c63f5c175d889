"""A fault at each await of a start and of a stop: the process ends in time, and nothing is lost.

The awaits are those that a life without a fault reaches. A roll, a seal and a checkpoint are done by threads
and have no await: `test_log_failpoints.py` and `test_failed_log.py` have faults at their calls of `Files`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pika
import pytest

from bench.load_amqp import Client
from bench.load_mqtt import log_in, publish_packet, subscribe
from tests.support.brokers import BrokerFailed, Gateway

pytestmark = [pytest.mark.penstock_only("this is about penstock's own code"), pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 30.0
"""A stop waits for clients up to `server.drain_timeout_s`, 1 s here; the rest is for a slow machine."""
MESSAGES = 5


class Faulty(Gateway):
    """A gateway with a fault at its `number`-th await."""

    stop_timeout_s = ENDS_WITHIN_S

    def __init__(self, folder: Path, number: int) -> None:
        any_port = dict.fromkeys(("http.listen", "native.listen"), "127.0.0.1:0")
        times = {"server.drain_timeout_s": "1", "server.login_timeout_s": "600"}
        super().__init__(folder, settings=any_port | times)
        self._number = number

    @property
    def places(self) -> list[str]:
        """The awaits that were reached, up to the one with the fault."""
        path = self.folder / "places"
        return path.read_text().splitlines() if path.exists() else []

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("penstock")
        faults = ["tests.support.await_faults", str(self.folder / "places"), str(self._number)]
        return [*words[:at], *faults, *words[at + 1 :]]

    def environment(self) -> Mapping[str, str]:
        inherited = dict(super().environment())
        return {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}:{ROOT}"}


def publish(port: int, first: int) -> list[int]:
    """Publish numbered messages; those that were confirmed."""
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60, stack_timeout=60)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for i in range(first, first + MESSAGES):
            channel.basic_publish("", "q", b"%d" % i, pika.BasicProperties(delivery_mode=2))
    return list(range(first, first + MESSAGES))


def kept(gateway: Gateway) -> set[int]:
    found = set()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.add(int(got[2]))
    return found


def live(gateway: Gateway) -> list[int]:
    """Serve a publisher, and two connections that stay until the stop, one of a session that outlives it."""
    assert gateway._process is not None
    confirmed = []
    with ExitStack() as stack:
        try:
            confirmed += publish(gateway.amqp_port, MESSAGES)
            s, _ = log_in(gateway.mqtt_port, "stays", clean=False)
            stack.enter_context(s)
            subscribe(s, "t", 1)
            s.sendall(publish_packet("t", b"x", qos=1, packet_id=1))
            s.recv(100)
            stack.enter_context(closing(Client(gateway.amqp_port).socket))
        except (pika.exceptions.AMQPConnectionError, EOFError) as error:
            # The fault was at the login: the connection is dropped at once.
            if "imeout" in repr(error):
                raise
        finally:
            gateway._process.terminate()
            try:
                gateway._process.wait(ENDS_WITHIN_S)
            finally:
                if gateway.running:
                    gateway.kill9()
    return confirmed


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with confirmed messages."""
    folder = tmp_path_factory.mktemp("before") / "gateway"
    with Gateway(folder) as gateway:
        publish(gateway.amqp_port, 0)
    return gateway.data_dir


def test_nothing_is_lost_and_the_process_ends(before: Path, tmp_path: Path) -> None:
    whole = Faulty(tmp_path / "whole", 0)
    shutil.copytree(before, whole.data_dir, dirs_exist_ok=True)
    live(whole.start())
    assert whole._process is not None and whole._process.returncode == 0
    stops = [place for place in whole.places if re.search("drain|stop|close", place)]
    assert len(stops) >= 5 and len(whole.places) > len(stops) + 3, whole.places
    failed = []
    for number in range(1, len(whole.places) + 1):
        faulty = Faulty(tmp_path / str(number), number)
        shutil.copytree(before, faulty.data_dir, dirs_exist_ok=True)
        confirmed = list(range(MESSAGES))
        try:
            confirmed += live(faulty.start())
        except BrokerFailed:
            if faulty.running:
                failed.append(f"{faulty.places[-1]}: neither ready nor over\n{faulty.log_tail()}")
                faulty.kill9()
        except (subprocess.TimeoutExpired, pika.exceptions.AMQPConnectionError) as error:
            failed.append(f"{faulty.places[-1]}: {error!r}\n{faulty.log_tail()}")
        with Gateway(faulty.folder) as again:
            missing = set(confirmed) - kept(again)
        if missing:
            failed.append(f"{faulty.places[-1]}: {missing} are lost\n{faulty.log_tail()}")
        shutil.rmtree(faulty.folder)
    assert not failed, "\n".join(failed)
