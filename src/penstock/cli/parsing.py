"""The parsers of the commands, each made from its module when it is asked for.

A word that no parser knows is an error with the nearest word that it knows. Verbs that make, show and delete
things have one name for all nouns (`SYNONYMS`), and the names that other tools have for them are taken, too.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

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


class Parser(argparse.ArgumentParser):
    """Knows synonyms and near words. An interval such as "-1h" is a value, as a negative number is."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._negative_number_matcher = re.compile(r"-[0-9]+(\.[0-9]+|[A-Za-z])?$")
        self.synonyms: dict[str, str] = {}
        """Other names of its verbs."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse. Each parser refuses the words that it does not know itself: it knows what is near.

        Raises:
            ConfigError: the words are wrong.

        """
        words = sys.argv[1:] if args is None else list(args)
        verbs = self.verbs()
        at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
        if verbs and at < len(words):
            words[at] = self.synonyms.get(words[at], words[at])
        self._check_options(words[:at] if verbs else words)
        if verbs and at == len(words) and not {"-h", "--help"} & {*words}:
            self.error(f"a verb is missing; {self.prog} has {', '.join(verbs)}")
        parsed, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"it has no place for {' '.join(unknown)}")
        return parsed, unknown

    def verbs(self) -> dict[str, argparse.ArgumentParser]:
        """The parsers of its verbs by name; empty when it has none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def error(self, message: str, near: str = "") -> NoReturn:
        """Refuse the words. Raises ConfigError."""
        raise ConfigError(message, remedy=f"{near}`{self.prog} --help` says more")

    def _check_options(self, words: Sequence[str]) -> None:
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            if not name.startswith("--") or " " in name:
                continue
            options = [one for action in self._actions for one in action.option_strings]
            if not any(one.startswith(name) for one in options):
                self.error(f"there is no option '{name}'", nearest(name, options))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            said = f"{self.prog} has no verb '{value}'"
        else:
            said = f"{'/'.join(action.option_strings) or action.dest}: '{value}' is not allowed"
        self.error(f"{said}, but {', '.join(known)}", nearest(str(value), known))


def nearest(word: str, known: Iterable[str]) -> str:
    """A question that names the known word that is most like `word`, and a space; empty when none is."""
    near = _nearest(word, known)
    return f"did you mean '{near}'? " if near else ""


def _nearest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # here: most words are known

    # Dashes are in all options: they make none like another.
    bare = {one.lstrip("-"): one for one in known}
    return next((bare[one] for one in get_close_matches(word.lstrip("-"), bare, 1, 0.65)), "")


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
        if noun := _nearest(rest[0], GROUPS["a running gateway"]):
            hint = f"did you mean 'penstock {noun} {verbs[0]}'? "
    return ConfigError(f"there is no {kind} '{name}'", remedy=f"{hint}`penstock --help` lists the commands")
