"""The figures of a comparison: medians, ratios, goals, and the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from bench.cpu import Meter, cpu_seconds, descendants, resident_bytes
from bench.load import Load, Result, percentiles_us
from bench.load_amqp import delivery_bytes, frame, message, method
from bench.load_mqtt import publish_packet, remaining_length
from bench.report import COLUMNS, markdown, middle, ratios, reached, rows
from bench.workloads import WORKLOADS, Workload
from tests.support.limits import LIMIT_S


def result(cpu_us: float = 1.0, *, lost: int = 0, backlog: int = 0, p50: float | None = None) -> Result:
    latency = {} if p50 is None else {"p50": p50, "p99": 2 * p50, "p999": 3 * p50, "max": 4 * p50}
    return Result(3.0, 1000.0, 1000.0, cpu_us, 0.5, 5000, 5000 - lost, lost, backlog, latency)


THROUGHPUT = Workload("w", Load("mqtt"), goal=8)
LATENCY = Workload("l", Load("mqtt", rate=1000))


def test_the_median_of_each_figure_counts_and_losses_add_up() -> None:
    got = middle([result(1.0, lost=1), result(9.0), result(2.0, lost=2)])
    assert (got.cpu_us_per_delivered, got.lost) == (2.0, 3)
    assert middle([result(p50=v) for v in (5.0, 1.0, 3.0)]).latency_us["p99"] == 6.0


@pytest.mark.parametrize(("ours", "peers", "factor", "goal"), [(1.0, 9.0, 9.0, True), (1.0, 7.0, 7.0, False)])
def test_a_goal_is_a_factor_in_messages_per_cpu_second(
    ours: float, peers: float, factor: float, goal: bool
) -> None:
    results = {"penstock": result(ours), "mosquitto": result(peers)}
    assert ratios(THROUGHPUT, results) == {"cpu": factor}
    assert reached(THROUGHPUT, results) is goal


@pytest.mark.parametrize(("ours", "peers", "goal"), [(100.0, 100.0, True), (101.0, 100.0, False)])
def test_latency_must_not_be_above_the_peers(ours: float, peers: float, goal: bool) -> None:
    results = {"penstock": result(p50=ours), "mosquitto": result(p50=peers)}
    assert reached(LATENCY, results) is goal


def test_without_a_peer_nothing_is_claimed() -> None:
    results = {"penstock": result()}
    assert reached(THROUGHPUT, results) is None
    assert rows(THROUGHPUT, results)[0][COLUMNS.index("goal")] == ">= 8x CPU: not compared"


def test_losses_and_backlogs_are_told() -> None:
    row = rows(THROUGHPUT, {"mosquitto": result(lost=7, backlog=5)})[0]
    assert row[COLUMNS.index("lost")] == "7 of 5,000 sent (5 still queued)"
    assert markdown([row]).count("\n") == 2


def test_percentiles() -> None:
    ages = [i * 1000 for i in range(1000)]
    assert percentiles_us(ages) == {"p50": 500, "p99": 990, "p999": 999, "max": 999}
    assert percentiles_us([]) == {}


def test_every_workload_has_its_own_name() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)


@pytest.mark.parametrize(
    ("size", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")]
)
def test_remaining_length(size: int, encoded: str) -> None:
    assert remaining_length(size).hex() == encoded


def test_publish_packet() -> None:
    assert publish_packet("a/b", b"xy", qos=1, packet_id=258) == b"\x32\x09\x00\x03a/b\x01\x02xy"


def test_the_length_of_a_delivery_is_that_of_its_three_frames() -> None:
    whole = message("q", 100, durable=True)
    buffer = bytearray(whole + frame(3, 1, b""))
    assert delivery_bytes(buffer, frames=3) == len(whole)
    for cut in range(len(whole)):
        assert delivery_bytes(bytearray(whole[:cut]), frames=3) == 0
    assert method(1, 60, 80, b"")[:7] == b"\x01\x00\x01\x00\x00\x00\x04"


def test_cpu_of_a_process_tree_counts_its_children() -> None:
    before = cpu_seconds(os.getpid())
    child = os.fork()
    if not child:
        end = time.process_time() + 30
        while time.process_time() < end:
            pass
        os._exit(0)
    try:
        deadline = time.monotonic() + LIMIT_S
        while cpu_seconds(os.getpid()) - before < 0.3 or cpu_seconds(child) <= 0.1:
            assert time.monotonic() < deadline
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert cpu_seconds(child) == 0.0
    assert resident_bytes(os.getpid()) > 1 << 20


BUSY_CHILD = """
import os, signal, sys, time
if sys.argv[1] == "True":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
while not child and time.process_time() < 30:
    pass
if child:
    try:
        os.waitpid(child, 0)
    except ChildProcessError:  # ignored: when all have ended
        pass
"""


@pytest.mark.parametrize("ignored", [False, True])
def test_a_meter_counts_each_process_that_ended_once(ignored: bool) -> None:
    def used() -> float:
        return meter.cpu_s - (time.process_time() - began)

    began = time.process_time()
    with Meter(os.getpid()) as meter:
        parent = subprocess.Popen([sys.executable, "-c", BUSY_CHILD, str(ignored)])
        deadline = time.monotonic() + LIMIT_S
        while used() < 0.3:
            assert time.monotonic() < deadline
        (child,) = set(descendants(parent.pid)) - {parent.pid}
        os.kill(child, signal.SIGSTOP)  # or it works on behind the look, for long on a busy machine
        before = cpu_seconds(parent.pid)
        os.kill(child, signal.SIGKILL)
        parent.wait(LIMIT_S)
    if ignored:  # what it used since the last look is missing
        assert used() > 0.2
    else:
        assert used() > before - 0.05
    assert used() < 1.5 * before
