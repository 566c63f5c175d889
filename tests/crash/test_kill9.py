"""Kill -9 under load: nothing confirmed is lost, repetitions are flagged, order kept, QoS 2 exactly once.

This is the short run; `python -m tests.crash.soak` is the long one. A failing run prints its seed;
`--crash-seed` repeats its times.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.crash.amqp10_stream import Amqp10Stream
from tests.crash.cycles import run_cycles
from tests.crash.streams import DeadLetterStream
from tests.support.brokers import Broker, BrokerMissing, Mosquitto

RESTART_CPU_LIMIT_S = 10.0
"""Far above what a restart takes of the CPU. The soak run prints how long it takes."""


@pytest.mark.timeout(900)
@pytest.mark.not_on("mosquitto", "it saves its sessions at exit only")
def test_kill_9_under_load_loses_nothing_that_was_confirmed(
    own_broker: Broker, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("--crash-seed")
    cycles = 2 if own_broker.name == "rabbitmq" else 4
    report = run_cycles(
        own_broker,
        cycles=cycles,
        seed=secrets.randbits(32) if seed is None else seed,
        load_s=(0.1, 0.8),
        acked_min=50,
    )
    print(report)
    assert report.verdict.word == "PASS", str(report)
    assert report.sessions_lost == 0, str(report)
    if own_broker.name == "penstock":
        assert max(cycle.ready_cpu_s for cycle in report.cycles) < RESTART_CPU_LIMIT_S, str(report)


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("the others speak AMQP 1.0 with a plug-in")
def test_kill_9_loses_nothing_that_amqp_1_0_accepted(own_broker: Broker, pytestconfig: pytest.Config) -> None:
    """Nor does a message come again that the broker has settled after its consumer accepted it."""
    seed = pytestconfig.getoption("--crash-seed")
    port = own_broker.amqp_port
    streams = [Amqp10Stream("amqp10", port), Amqp10Stream("second", port, second=True)]
    report = run_cycles(
        own_broker,
        cycles=2,
        seed=secrets.randbits(32) if seed is None else seed,
        load_s=(0.1, 0.8),
        acked_min=50,
        streams=streams,
    )
    print(report)
    assert report.verdict.word == "PASS", str(report)
    assert any(stream.ended for stream in streams), "the broker settled nothing"
    assert report.sessions_lost == 0, str(report)


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("the load uses arguments of later versions")
def test_kill_9_loses_no_dead_letter(own_broker: Broker, pytestconfig: pytest.Config) -> None:
    """Through two queues, the second of which is often full. Letters may come twice, not flagged."""
    seed = pytestconfig.getoption("--crash-seed")
    report = run_cycles(
        own_broker,
        cycles=3,
        seed=secrets.randbits(32) if seed is None else seed,
        load_s=(0.1, 0.8),
        acked_min=50,
        streams=[DeadLetterStream("letters", own_broker.amqp_port)],
    )
    print(report)
    verdict = report.verdict
    assert not (verdict.lost or verdict.unexpected or verdict.invalid), str(report)
    assert report.sessions_lost == 0, str(report)


@pytest.mark.timeout(600)
def test_the_harness_finds_the_losses_of_a_broker_that_confirms_before_it_keeps(tmp_path: Path) -> None:
    """Mosquitto answers PUBACK from memory, so a kill -9 must show up as lost messages and sessions."""
    try:
        broker = Mosquitto(tmp_path, persistence=True, options=("max_queued_messages 0",))
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with broker:
        report = run_cycles(broker, cycles=1, seed=1, load_s=(0.5, 0.5), acked_min=50, drain_stall_s=3.0)
    assert report.verdict.word == "FAIL", str(report)
    assert report.verdict.lost, str(report)
    assert report.sessions_lost > 0, str(report)
