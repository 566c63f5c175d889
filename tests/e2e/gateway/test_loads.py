"""Every workload of the benchmark for a moment: at full speed nothing is lost and nothing stands still.

The rates are not judged here. A reader that lags, output that fills up, a cache that is left behind: all of
it happens within a second at these rates.
"""

from __future__ import annotations

import pytest

from bench import workers
from bench.light import Light
from bench.load import run
from bench.workloads import WORKLOADS, Workload
from tests.support.brokers import Broker
from tests.support.limits import LIMIT_S


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_nothing_is_lost_at_full_speed(workload: Workload, own_broker: Broker, broker_name: str) -> None:
    port = own_broker.amqp_port if workload.load.protocol == "amqp" else own_broker.mqtt_port
    if not port or (broker_name != "penstock" and workload.peer != broker_name):
        pytest.skip(f"{broker_name} is not measured with it")
    result = run(workload.load, port, broker_pid=own_broker.pid, seconds=1.0, warm_s=0.3, drain_s=LIMIT_S)
    assert result.delivered_total > 0
    assert (result.lost, result.backlog) == (0, 0), f"{result}\n{own_broker.log_tail(5)}"


@pytest.mark.penstock_only("this is about penstock's processes")
@pytest.mark.parametrize("light", workers.LOADS[:1], ids=lambda light: light.name)
def test_every_byte_arrives_from_two_workers(light: Light) -> None:
    assert workers.measure(2, light, 0.5).delivered > 0
