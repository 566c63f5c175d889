"""Fixtures for the tests that need a broker as a process.

`--broker=penstock|rabbitmq|mosquitto` chooses which broker the tests of real clients run against (default:
penstock). The reference brokers prove the tests; penstock is then held to the same ones. A test names what
it needs by the fixture it takes: `amqp_port` and `mqtt_port` skip where the chosen broker does not speak
that protocol, and the mark `penstock_only` skips where only penstock promises the behaviour.
"""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from hypothesis import HealthCheck, settings

from tests.support.brokers import BROKERS, Broker, BrokerMissing
from tests.support.certificate_stores import keep_stores
from tests.support.forks import forks
from tests.support.hashes import keep_hashes
from tests.support.limits import LIMIT_S

pytest_plugins = ["tests.support.reports", "tests.support.scheduling"]

# Hundreds of processes are started: each would compile the gateway's 480 modules anew, half a second of CPU.
# The next run finds its tests compiled, too, which saves half of the collection.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control starts processes in the background with SIGINT ignored, and they pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pika gives a connection 15 s to open; no test is about that limit.
pika.connection.Parameters.DEFAULT_SOCKET_TIMEOUT = LIMIT_S
pika.connection.Parameters.DEFAULT_STACK_TIMEOUT = LIMIT_S

# Examples have no deadline, nor does their making: the machine may be busy, the sanitizers are slow.
# The suite tries 50, `make fuzz` 5,000; HYPOTHESIS_PROFILE=quick is for the tests between two edits. In CI
# the examples are the same in every run: there a red run says something about the change, and `make fuzz` is
# where new examples are looked for.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", untimed, max_examples=50, derandomize="CI" in os.environ)
settings.register_profile("quick", untimed, max_examples=15)
settings.register_profile("fuzz", untimed, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


# The C library would keep large blocks, such as scrypt's and those of packed batches, in each of 16 arenas.
_LIBC = ctypes.CDLL(None)
_LIBC.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: larger blocks go back to the system when they are freed
_LIBC.mallopt(-8, 2)  # M_ARENA_MAX

# Half a million objects come while tests are collected, and stay: see pytest_collection_finish.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=sorted(BROKERS),
        default="penstock",
        help="the broker under test (default: penstock)",
    )
    parser.addoption("--crash-seed", type=int, default=None, help="repeat a crash run that printed this seed")


def pytest_configure(config: pytest.Config) -> None:
    forks.allowed = os.environ.get("PENSTOCK_TEST_FORKS") != "0"
    config.addinivalue_line("markers", "penstock_only(reason): what the other brokers do not promise")
    config.addinivalue_line(
        "markers", "not_on(broker, reason): what the named reference broker does otherwise"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--broker")
    for item in items:
        only = item.get_closest_marker("penstock_only")
        if only is not None and chosen != "penstock":
            item.add_marker(pytest.mark.skip(reason=f"{chosen}: {only.args[0]}"))
        for mark in item.iter_markers("not_on"):
            if mark.args[0] == chosen:
                item.add_marker(pytest.mark.skip(reason=f"{chosen}: {mark.args[1]}"))


def pytest_collection_finish() -> None:
    """From now on the garbage collector looks only at what tests make: hundreds of them call it."""
    keep_hashes()
    keep_stores()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    forks.close()


@pytest.fixture(scope="session")
def broker_name(pytestconfig: pytest.Config) -> str:
    """The broker chosen by `--broker`."""
    name: str = pytestconfig.getoption("--broker")
    return name


@pytest.fixture(scope="session")
def make_broker(broker_name: str) -> Callable[[Path], Broker]:
    """Makes a broker of the chosen kind in a folder; skips when its program is not installed."""

    def make(folder: Path) -> Broker:
        try:
            return BROKERS[broker_name](folder)
        except BrokerMissing as missing:
            pytest.skip(str(missing))

    return make


@pytest.fixture(scope="session")
def broker(
    make_broker: Callable[[Path], Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The broker shared by the whole run; tests use names of their own (`unique`) and never restart it."""
    with make_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(make_broker: Callable[[Path], Broker], tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own, which it may stop, kill and restart."""
    with make_broker(tmp_path / "broker") as running:
        yield running


def _port(broker: Broker, protocol: str) -> int:
    port = broker.amqp_port if protocol == "amqp" else broker.mqtt_port
    if not port:
        pytest.skip(f"{broker.name} does not speak {protocol} here")
    return port


@pytest.fixture
def amqp_port(broker: Broker) -> int:
    """The AMQP port of the shared broker."""
    return _port(broker, "amqp")


@pytest.fixture
def mqtt_port(broker: Broker) -> int:
    """The MQTT port of the shared broker."""
    return _port(broker, "mqtt")


@pytest.fixture
def unique() -> str:
    """A name that no other test uses: letters and digits only, so that it is one word of a topic or key."""
    return "t" + secrets.token_hex(6)
