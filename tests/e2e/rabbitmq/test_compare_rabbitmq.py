"""Random programs of AMQP's methods have the same outcome on penstock and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx

from tests.compare.programs import program
from tests.compare.rabbitmq import STEPS, Side, compare
from tests.support.brokers import Gateway, RabbitMQ
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

PROGRAMS = 40  # `make compare-rabbitmq` runs 10,000 others
VHOST = "programs"


@contextmanager
def side(name: str, amqp_port: int, management_port: int) -> Iterator[Side]:
    """A broker, and its virtual host of this test's own."""
    base = f"http://127.0.0.1:{management_port}/api/"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=LIMIT_S) as api:
        api.put(f"vhosts/{VHOST}", json={}).raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(f"permissions/{VHOST}/guest", json=rights).raise_for_status()
        made = Side(name, amqp_port, VHOST)
        try:
            yield made
        finally:
            made.wire.close()
            api.delete(f"vhosts/{VHOST}").raise_for_status()


def test_random_programs_do_the_same_on_both_brokers(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    with (
        Gateway(tmp_path / "penstock", settings=SETTINGS) as gateway,
        side("penstock", gateway.amqp_port, gateway.ports["management"]) as ours,
        side("rabbitmq", rabbitmq.amqp_port, rabbitmq.management_port) as theirs,
    ):
        for number in range(PROGRAMS):
            steps = program(Random(number), STEPS)
            found = compare((ours, theirs), steps)
            assert found is None, (number, steps[: found.at + 1], found)
