"""The command lines of `penstock rabbitmqctl` and `rabbitmq-diagnostics`: options, verbs, exit codes.

Lines have tabs between cells, under a line of column names. -q leaves out what is said besides, -s the column
names too. Other forms are CSV, frames and JSON (--formatter). Exit codes are rabbitmqctl's: 64 wrong usage,
65 a wrong password, 67 no such user or vhost, 69 the gateway does not answer or a check failed, 70 anything
else that failed, 75 it took too long.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from penstock.cli.rabbitmqctl import help
from penstock.cli.rabbitmqctl.call import FAILED_CHECK, USAGE_ERROR, Call, Failure, Groups, Usage, Verb, Verbs
from penstock.cli.rabbitmqctl.formats import FORMATS
from penstock.cli.running.client import DEFAULT_URL, ApiError, Client

__all__ = ["Tool"]

_NOT_LOGGED_IN: Final = 65
_NO_USER: Final = 67
_UNAVAILABLE: Final = 69
_FAILED: Final = 70


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Usage(message)


def _parser(tool: str) -> _Parser:
    parser = _Parser(prog=f"penstock {tool}", add_help=False)
    parser.add_argument("--url", default=os.environ.get("PENSTOCK_URL", DEFAULT_URL))
    parser.add_argument("-h", "-?", "--help", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-p", "--vhost", default="/")
    parser.add_argument("-n", "--node")
    parser.add_argument("-l", "--longnames", action="store_true")
    parser.add_argument("-t", "--timeout")
    parser.add_argument("--no-table-headers", action="store_true")
    parser.add_argument("--formatter", choices=FORMATS, default="table")
    parser.add_argument("--priority", type=int, default=0)
    parser.add_argument("--apply-to", default="all")
    parser.add_argument("-e", "--if-empty", action="store_true")
    parser.add_argument("-u", "--if-unused", action="store_true")
    parser.add_argument("--tags", default=None)
    parser.add_argument("--description", default=None)
    parser.add_argument("--user", default=None)
    parser.add_argument("--global", dest="everywhere", action="store_true")
    parser.add_argument("--online", action="store_true")  # all queues are, and local
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--only-down", action="store_true")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--default-queue-type", default=None)
    parser.add_argument("-P", "--pid", type=int)
    parser.add_argument("--unit", default="weeks")
    parser.add_argument("--within", type=int, default=4)
    parser.add_argument("verb", nargs="?", default="help")
    parser.add_argument("words", nargs="*")
    return parser


class Tool:
    """One of RabbitMQ's tools: the verbs that it has."""

    def __init__(self, name: str, *parts: Groups) -> None:
        self.name = name
        self.groups: Groups = {}
        for title in help.TITLES:
            if verbs := {name: verb for part in parts for name, verb in part.get(title, {}).items()}:
                self.groups[title] = verbs
        self.verbs: Verbs = {name: verb for verbs in self.groups.values() for name, verb in verbs.items()}

    def run(self, words: Sequence[str]) -> int:
        """Run the verb in `words`, its options before or behind it; the exit code."""
        try:
            parsed = _parser(self.name).parse_intermixed_args(list(words))
        except Usage as error:
            print(f"Error (argument validation): {error}", file=sys.stderr)
            return USAGE_ERROR
        try:
            if parsed.verb == "help" or parsed.help:
                self._help(parsed)
            else:
                self._verb(parsed)
        except Usage as error:
            print(f"Error (argument validation): {error}", file=sys.stderr)
            return USAGE_ERROR
        except ApiError as error:
            if isinstance(error, Failure) and error.code == FAILED_CHECK and parsed.formatter == "json":
                print(json.dumps({"result": "error", "message": str(error)}), file=sys.stderr)
            elif error.status == 404 and error.message == "Not Found":
                # The thing that a verb is about has a text of its own; the vhost is left.
                print(f"Error:\nVirtual host '{parsed.vhost}' does not exist", file=sys.stderr)
            else:
                print(f"Error:\n{error}", file=sys.stderr)
            return _code(error, parsed.verb)
        except BrokenPipeError:
            raise  # the reader of our output went away: for each command the same
        except OSError as error:
            print(f"Error:\n{error}", file=sys.stderr)
            return _FAILED
        return 0

    def _help(self, parsed: argparse.Namespace) -> None:
        names = parsed.words if parsed.verb == "help" else [parsed.verb]
        if names and names != ["help"]:
            print(help.of_verb(self.name, names[0], self._found(names[0])))
        else:
            print(help.overview(self.name, self.groups))

    def _verb(self, parsed: argparse.Namespace) -> None:
        verb = self._found(parsed.verb)
        if len(parsed.words) < verb.least:
            raise Usage(
                f"not enough arguments. Usage: penstock {self.name} {parsed.verb} {verb.usage}".rstrip()
            )
        with Client(parsed.url) as client:
            verb.action(Call(client, parsed))

    def _found(self, name: str) -> Verb:
        verb = self.verbs.get(name)
        if verb is None:
            near = difflib.get_close_matches(name, self.verbs, 1, 0.6)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise Usage(f"Command '{name}' not found; {hint}`penstock {self.name} help` lists the commands")
        return verb


def _code(error: ApiError, verb: str) -> int:
    if isinstance(error, Failure):
        return error.code
    if error.status == 0:
        return _UNAVAILABLE
    if error.status == 401 and verb == "authenticate_user":
        return _NOT_LOGGED_IN
    return _NO_USER if error.status == 404 else _FAILED
