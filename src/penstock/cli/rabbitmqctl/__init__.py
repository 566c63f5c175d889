"""`penstock rabbitmqctl VERB ...`: what operators' scripts call, answered in rabbitmqctl's words and formats.

`command` reads the words and knows the exit codes. `call` is what a verb is given. `formats` prints tables,
and `help` the help. `admin`, `resources`, `node`, `state`, `starting` and `parameters` have the verbs.
`checks` has those of `penstock rabbitmq-diagnostics`.

Source: RabbitMQ's rabbitmqctl and rabbitmq-diagnostics as observed (3.10.8).
"""

from __future__ import annotations

from typing import Final

from penstock.cli.rabbitmqctl import admin, checks, node, parameters, resources, starting, state
from penstock.cli.rabbitmqctl.command import Tool

__all__ = ["VERBS", "run"]

_TOOL: Final = Tool(
    "rabbitmqctl",
    state.GROUPS,
    node.GROUPS,
    starting.GROUPS,
    admin.GROUPS,
    resources.GROUPS,
    parameters.GROUPS,
    checks.BOTH,
)

VERBS: Final = _TOOL.verbs
run: Final = _TOOL.run
