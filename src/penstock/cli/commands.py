"""The commands by name: where each is, and its line in the help.

This module imports nothing, so that `penstock --help` costs hardly more than Python itself. The module of a
command is imported when somebody names the command (`penstock.cli.parsing`).
"""

from __future__ import annotations

__all__ = ["FOREIGN", "GROUPS", "MODULES", "overview"]

GROUPS = {
    "run a gateway": {
        "serve": ("local.serve", "run the gateway until SIGTERM or SIGINT"),
        "config": ("local.show_config", "show the configuration"),
        "doctor": ("local.doctor", "say what is unsafe or wrong, and what to do"),
        "cluster": ("local.cluster", "the nodes over one log that Kafka keeps"),
        "log": ("local.log", "look into a log on disk, check, mend, copy it"),
    },
    "messages": {
        "pub": ("running.messages", "publish messages"),
        "sub": ("running.messages", "take messages and print them"),
        "tail": ("running.messages", "print what passes, and take nothing"),
        "search": ("running.messages", "find messages of the past"),
        "dlq": ("running.dlq", "dead letters"),
    },
    "a running gateway": {
        "top": ("running.top", "the gateway at work, anew every two seconds"),
        "queues": ("running.manage", "look at queues, make and delete them"),
        "exchanges": ("running.manage", "look at exchanges and bindings, make and delete them"),
        "topics": ("running.topics", "streams: what is kept and read again"),
        "subs": ("running.topics", "subscriptions to topics"),
        "webhooks": ("running.webhooks", "messages pushed to URLs"),
        "shovels": ("running.links", "messages moved to and from other brokers by AMQP"),
        "federation": ("running.links", "exchanges and queues that get messages of other brokers"),
        "bridges": ("running.links", "messages moved to and from other brokers by MQTT"),
        "connections": ("running.manage", "look at clients, close their connections"),
        "users": ("running.manage", "users, their tags and permissions"),
        "vhosts": ("running.manage", "virtual hosts"),
        "policies": ("running.manage", "policies of a vhost"),
        "definitions": ("running.definitions", "everything that was declared, out and in"),
        "tokens": ("running.access", "access tokens, which log in instead of a password"),
        "certificates": ("running.access", "certificates of the listeners, and reading them again"),
        "audit": ("local.audit", "who administered what"),
        "bench": ("running.bench", "publish and pull some messages, and say how fast"),
    },
    "tools": {
        "migrate": ("migrate", "move from RabbitMQ or Mosquitto, or back"),
        "rabbitmqctl": ("rabbitmqctl", "answer a verb of RabbitMQ's rabbitmqctl"),
        "rabbitmq-diagnostics": ("rabbitmqctl.checks", "answer a check of RabbitMQ's rabbitmq-diagnostics"),
        "spark": ("local.spark", "run a pipeline over the log: tables, reports, replays"),
        "completion": ("completion", "print what a shell needs to complete commands"),
    },
}
"""Command -> (module of penstock.cli, its line in the help), as the help groups them."""

MODULES = {name: found for group in GROUPS.values() for name, found in group.items()}
"""Command -> (module of penstock.cli, its line in the help)."""

FOREIGN = ("rabbitmqctl", "rabbitmq-diagnostics", "spark")
"""The commands whose words are not those of a parser of ours: their module has `run(words)` and `VERBS`."""


def overview() -> str:
    """The text of `penstock --help`."""
    lines = [
        "usage: penstock COMMAND ...",
        "",
        "One gateway for AMQP, MQTT and HTTP. It keeps all messages in one log.",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<21} {text}" for name, (_, text) in group.items())]
    lines += [
        "",
        "options:",
        "  -h, --help            show this help; behind a command, that of the command",
        "  --version             show the version",
        "",
        "`penstock COMMAND --help` lists the verbs of a command.",
        "`penstock COMMAND VERB --help` lists the options of a verb.",
    ]
    return "\n".join(lines)
