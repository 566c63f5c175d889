"""`python -m tests.compare.rabbitmqctl`: whether Debian's rabbitmqctl still prints what is recorded of it.

Each verb starts an Erlang machine, so tests/e2e/cli/test_cli.py compares penstock with the record. With
--write the record is made anew; its verbs are written there by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import pika

from tests.support.brokers import Broker, RabbitMQ

__all__ = ["RECORD", "declare", "recorded"]

RECORD: Final = Path(__file__).resolve().parents[1] / "golden" / "rabbitmqctl.json"


def recorded() -> list[tuple[list[str], str]]:
    """Verbs with their arguments, in order, and what rabbitmqctl -q printed."""
    return [(verb["words"], verb["printed"]) for verb in json.loads(RECORD.read_text())]


def declare(broker: Broker) -> None:
    """Make what the verbs are about."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("ctl one", durable=True, arguments={"x-max-length": 9})
        channel.queue_declare("ctl-two", durable=True)
        channel.queue_bind("ctl one", "amq.topic", "a.#")
        channel.confirm_delivery()
        channel.basic_publish("", "ctl one", b"x")


def main() -> int:
    """Ask RabbitMQ, and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the answers")
    parsed = parser.parse_args()
    wanted = recorded()
    with tempfile.TemporaryDirectory() as folder, RabbitMQ(Path(folder)) as broker:
        declare(broker)
        found = [(words, broker.ctl(*words)) for words, _ in wanted]
    if parsed.write:
        verbs = [{"words": words, "printed": printed} for words, printed in found]
        RECORD.write_text(json.dumps(verbs, indent=1) + "\n")
        return 0
    wrong = 0
    for (words, printed), (_, expected) in zip(found, wanted, strict=True):
        if sorted(printed.splitlines()) != sorted(expected.splitlines()):  # RabbitMQ has no order
            print(f"rabbitmqctl {' '.join(words)} printed\n{printed}and the record has\n{expected}")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
