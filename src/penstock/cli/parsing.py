"""The parsers of the commands, each made from its module when it is asked for.

Verbs that make, show and delete things have one name for all nouns (`SYNONYMS`), and the names that other
tools have for them are taken, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from penstock.argument_parser import Parser, nearest, nearest_word
from penstock.cli.commands import GROUPS, MODULES
from penstock.errors import ConfigError

__all__ = ["ELSEWHERE", "SYNONYMS", "Builder", "Parser", "nearest", "parser_of", "unknown_command"]

Builder = Callable[["Parser"], None]
"""Gives the parser of a command its arguments, and sets `run`: parsed -> exit code. A module of commands has
`COMMANDS`: name -> builder."""

SYNONYMS: Final = {
    "create": ("declare", "add", "set", "new"),
    "delete": ("remove", "rm"),
    "show": ("get", "describe", "info"),
    "list": ("ls",),
}
"""Verb -> other names of it."""


ELSEWHERE: Final = {
    **dict.fromkeys(("publish", "produce", "producer", "send"), "pub"),
    **dict.fromkeys(("consume", "consumer", "subscribe", "receive", "read", "pull"), "sub"),
    **dict.fromkeys(("peek", "watch", "listen", "follow"), "tail"),
    **dict.fromkeys(("run", "start", "server", "broker"), "serve"),
    **dict.fromkeys(("overview", "stats", "metrics", "monitor"), "top"),
    **dict.fromkeys(("check", "health", "diagnose"), "doctor"),
    **dict.fromkeys(("lag", "groups", "consumer-groups", "subscriptions"), "subs list"),
    **dict.fromkeys(("perf", "perf-test", "benchmark"), "bench"),
    **dict.fromkeys(("streams", "partitions"), "topics list"),
    "bindings": "exchanges bindings",
    "permissions": "users permissions",
    "clients": "connections list",
    "export": "definitions export",
    "import": "definitions import",
}
"""Commands of other brokers' tools -> those that do the same here."""


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    module, text = MODULES[name]
    parser = Parser(prog=f"penstock {name}", description=f"{text[0].upper()}{text[1:]}.")
    build: Builder = import_module(f"penstock.cli.{module}").COMMANDS[name]
    build(parser)
    return parser


def unknown_command(name: str, rest: Sequence[str]) -> ConfigError:
    """The error about a command that there is not: it names what was probably meant."""
    from penstock.cli.rabbitmqctl import VERBS

    kind = "option" if name.startswith("-") else "command"
    hint = nearest(name, (*MODULES, "--help", "--version"))
    if name in ELSEWHERE:
        hint = f"did you mean 'penstock {ELSEWHERE[name]}'? "
    elif name in VERBS:
        hint = f"did you mean 'penstock rabbitmqctl {name}'? "
    elif rest and (verbs := [verb for verb, others in SYNONYMS.items() if name in (verb, *others)]):
        if noun := nearest_word(rest[0], GROUPS["a running gateway"]):
            hint = f"did you mean 'penstock {noun} {verbs[0]}'? "
    return ConfigError(f"there is no {kind} '{name}'", remedy=f"{hint}`penstock --help` lists the commands")
