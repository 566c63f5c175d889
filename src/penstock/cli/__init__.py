"""The command `penstock`.

Read `commands` first: the table of the commands, and the module of each. `command` runs the one that was
named, whose module is imported then (`parsing`). Commands about a running gateway are in `running`: they are
made with `nouns` and ask its management API through `client`. `local` has those that need no gateway.
`rabbitmqctl` answers in the words of RabbitMQ's tool.
"""

from __future__ import annotations

from penstock.cli.command import main

__all__ = ["main"]
