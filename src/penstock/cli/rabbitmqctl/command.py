"""The command line of `penstock rabbitmqctl`: options, verbs, exit codes.

Lines have tabs between cells, under a line of column names. -q leaves out what is said besides, -s the column
names too; --formatter json prints objects. Exit codes are rabbitmqctl's: 64 wrong usage, 65 a wrong password,
67 no such user or vhost, 69 the gateway does not answer, 70 anything else that failed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from penstock.cli.client import DEFAULT_URL, ApiError, Client
from penstock.cli.rabbitmqctl import admin, node, things
from penstock.cli.rabbitmqctl.call import USAGE_ERROR, Call, Missing, Usage, Verbs

__all__ = ["VERBS", "run"]

_NOT_LOGGED_IN: Final = 65
_NO_USER: Final = 67
_UNAVAILABLE: Final = 69
_FAILED: Final = 70

VERBS: Final[Verbs] = {**admin.VERBS, **things.VERBS, **node.VERBS}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Usage(message)


def run(words: Sequence[str]) -> int:
    """Run the verb in `words`, its options before or behind it; the exit code."""
    parser = _Parser(prog="penstock rabbitmqctl", add_help=False)
    parser.add_argument("--url", default=os.environ.get("PENSTOCK_URL", DEFAULT_URL))
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-p", "--vhost", default="/")
    parser.add_argument("-n", "--node")
    parser.add_argument("-t", "--timeout")
    parser.add_argument("--no-table-headers", action="store_true")
    parser.add_argument("--formatter", choices=("table", "json", "tsv"), default="table")
    parser.add_argument("--priority", type=int, default=0)
    parser.add_argument("--apply-to", default="all")
    parser.add_argument("-e", "--if-empty", action="store_true")
    parser.add_argument("-u", "--if-unused", action="store_true")
    parser.add_argument("--tags", default=None)
    parser.add_argument("--description", default=None)
    parser.add_argument("--user", default=None)
    parser.add_argument("--global", dest="everywhere", action="store_true")
    parser.add_argument("verb", nargs="?", default="help")
    parser.add_argument("words", nargs="*")
    if words[:1] in (["-h"], ["--help"]):
        words = ["help"]
    try:
        parsed = parser.parse_intermixed_args(list(words))
        if parsed.verb == "help":
            print("usage: penstock rabbitmqctl [--url URL] VERB ...\n\n" + "\n".join(sorted(VERBS)))
            return 0
        verb = VERBS.get(parsed.verb)
        if verb is None:
            near = difflib.get_close_matches(parsed.verb, VERBS, 1, 0.6)
            hint = f"did you mean '{near[0]}'? T" if near else "t"
            raise Usage(f"Command '{parsed.verb}' not found; {hint}here are {', '.join(sorted(VERBS))}")
        needed, action = verb
        if len(parsed.words) < needed:
            raise Usage(f"{parsed.verb}: not enough arguments")
        with Client(parsed.url) as client:
            action(Call(client, parsed))
    except Usage as error:
        print(f"Error (argument validation): {error}", file=sys.stderr)
        return USAGE_ERROR
    except ApiError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        if error.status == 0:
            return _UNAVAILABLE
        if isinstance(error, Missing):
            return error.code
        if error.status == 401 and parsed.verb == "authenticate_user":
            return _NOT_LOGGED_IN
        return _NO_USER if error.status == 404 else _FAILED
    except OSError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        return _FAILED
    return 0
