"""Random programs of AMQP's methods have the same outcome on penstock and on RabbitMQ."""

from __future__ import annotations

from random import Random

import pytest

from tests.compare.programs import program
from tests.compare.rabbitmq import STEPS, brokers, compare
from tests.support.brokers import BrokerMissing

PROGRAMS = 40  # `make compare-rabbitmq` runs 10,000 others


def test_random_programs_do_the_same_on_both_brokers() -> None:
    try:
        with brokers() as sides:
            for number in range(PROGRAMS):
                steps = program(Random(number), STEPS)
                found = compare(sides, steps)
                assert found is None, (number, steps[: found.at + 1], found)
    except BrokerMissing as missing:
        pytest.skip(str(missing))
