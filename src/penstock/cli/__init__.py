"""The command `penstock`.

`command` has the parser and runs what was asked for. Each noun or verb is a module of its name: those about a
running gateway are made with `nouns` and ask its management API through `client`; `log` reads a data folder
without a gateway; `rabbitmqctl` answers in the words of RabbitMQ's tool.
"""

from __future__ import annotations

from penstock.cli.command import main

__all__ = ["main"]
