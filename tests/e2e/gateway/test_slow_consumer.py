"""The effect on other clients of a consumer that does not read."""

from __future__ import annotations

import pika
import pytest
from pamqp import commands

from tests.support.amqp_client import Connection
from tests.support.limits import LIMIT_S


@pytest.mark.penstock_only("its memory is not bounded by a mark of its own")
def test_a_consumer_that_does_not_read_harms_nobody(amqp_port: int, unique: str) -> None:
    """It takes no acknowledgements and reads nothing; another queue of the same exchange gets everything."""
    count, body = 3000, b"x" * 10_000
    with Connection(amqp_port) as stuck:
        stuck.call(1, commands.Channel.Open())
        stuck.call(1, commands.Exchange.Declare(exchange=unique, exchange_type="fanout", auto_delete=True))
        stuck.call(1, commands.Queue.Declare(queue=f"{unique}.stuck", exclusive=True))
        stuck.call(1, commands.Queue.Bind(queue=f"{unique}.stuck", exchange=unique))
        stuck.call(1, commands.Basic.Consume(queue=f"{unique}.stuck", no_ack=True))
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(f"{unique}.live", exclusive=True)
            channel.queue_bind(f"{unique}.live", unique)
            got = 0
            for _ in range(count):
                channel.basic_publish(unique, "", body)
            for method, _, received in channel.consume(
                f"{unique}.live", auto_ack=True, inactivity_timeout=LIMIT_S
            ):
                assert method is not None, f"{got} of {count} arrived"
                assert received == body
                got += 1
                if got == count:
                    break
            declared = channel.queue_declare(f"{unique}.live", passive=True)
            assert declared.method.message_count == 0
