"""penstock: one partitioned log, spoken to in AMQP, MQTT, HTTP and a native protocol.

Importing the package loads nothing else, so that a part of it (say ``penstock.spark``
on a Spark executor) can be imported alone.
"""

from __future__ import annotations

__all__ = ["__version__"]
__version__ = "0.1.0"
