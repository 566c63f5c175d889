"""Methods of AMQP with names as brokers take them: pamqp would refuse all but some ASCII characters."""

from __future__ import annotations

from pamqp import commands

__all__ = [
    "Consume",
    "ExchangeDeclare",
    "ExchangeDelete",
    "Publish",
    "QueueBind",
    "QueueDeclare",
    "QueueDelete",
]


class _AnyName:
    def validate(self) -> None:
        """Leave it to the broker. A name of more than 255 bytes cannot be encoded."""


class Consume(_AnyName, commands.Basic.Consume):
    """basic.consume"""


class Publish(_AnyName, commands.Basic.Publish):
    """basic.publish"""


class ExchangeDeclare(_AnyName, commands.Exchange.Declare):
    """exchange.declare"""


class ExchangeDelete(_AnyName, commands.Exchange.Delete):
    """exchange.delete"""


class QueueBind(_AnyName, commands.Queue.Bind):
    """queue.bind"""


class QueueDeclare(_AnyName, commands.Queue.Declare):
    """queue.declare"""


class QueueDelete(_AnyName, commands.Queue.Delete):
    """queue.delete"""
