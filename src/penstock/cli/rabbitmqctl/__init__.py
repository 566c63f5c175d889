"""`penstock rabbitmqctl VERB ...`: what operators' scripts call, answered in rabbitmqctl's words and formats.

`command` reads the words and knows the exit codes, `call` is what a verb is given; `things`, `node` and
`admin` have the verbs.

Source: RabbitMQ's rabbitmqctl as observed (3.10).
"""

from __future__ import annotations

from penstock.cli.rabbitmqctl.command import VERBS, run

__all__ = ["VERBS", "run"]
