"""The parser of a command line: its error about a word that it does not know names the nearest known one."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from penstock.errors import ConfigError

__all__ = ["Parser", "nearest", "nearest_word"]


class Parser(argparse.ArgumentParser):
    """Knows synonyms and near words. An interval such as "-1h" is a value, as a negative number is."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._negative_number_matcher = re.compile(r"-[0-9]+(\.[0-9]+|[A-Za-z])?$")
        self.synonyms: dict[str, str] = {}
        """Other names of its verbs."""
        self.near = {"-p": "--vhost"}
        """Options that it has not -> those of its own that are meant; -p is RabbitMQ's."""

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
        if unknown and re.fullmatch("-[A-Za-z]", unknown[0]):
            self._refuse_option(unknown[0])
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
            if not any(one.startswith(name) for one in self._options()):
                self._refuse_option(name)

    def _options(self) -> list[str]:
        return [one for action in self._actions for one in action.option_strings]

    def _refuse_option(self, name: str) -> NoReturn:
        options = self._options()
        meant = self.near.get(name)
        self.error(f"there is no option '{name}'", nearest(meant if meant in options else name, options))

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
    near = nearest_word(word, known)
    return f"did you mean '{near}'? " if near else ""


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The known word that is most like `word`; empty when none is."""
    from difflib import get_close_matches  # here: most words are known

    # Dashes are in all options: they make none like another.
    bare = {one.lstrip("-"): one for one in known}
    return next((bare[one] for one in get_close_matches(word.lstrip("-"), bare, 1, 0.65)), "")
