"""Commands that errors and `penstock doctor` recommend, and the error about a thing that is not there.

The API says in RabbitMQ's words that something is missing. Here it has the name that the command line has for
it, and the remedy is a command. Recommended commands stand in backticks: tests run them.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

__all__ = ["command", "missing", "plain", "told_different", "told_missing"]

_TOLD: Final = re.compile(r"(?:NOT_FOUND - )?no (\w+) '(.*?)'(?: in vhost '(.*)')?")
_DIFFERENT: Final = re.compile(
    r"inequivalent arg '(.+?)' for (queue|exchange) '(.*)' in vhost '(.*)': "
    r"received (?:the value )?(.+?)(?: of type '\w+')? but current is (.+)"
)
_ERLANG: Final = re.compile(r'<<"(.*?)">>')
_NAMES: Final = {
    "stream": ("topic", "topics"),
    "subscription": ("subscription", "subs"),
    "policy": ("policy", "policies"),
}
"""Kind of thing in the API -> its name here, and the command about such things; of others with an s."""
_MADE_BY_NAME: Final = ("exchange", "queue", "stream", "subscription", "user", "vhost")
_IN_NO_VHOST: Final = ("connection", "user", "vhost")


def command(*words: str, vhost: str = "/", name: str = "") -> str:
    """A command line in backticks: `penstock WORDS [--vhost VHOST] [NAME]`."""
    line = ["penstock", *words]
    if vhost != "/":
        line += ["--vhost", vhost]
    if name:
        line += ["--", name] if name.startswith("-") else [name]
    return f"`{shlex.join(line)}`"


def missing(kind: str, name: str, vhost: str = "/", *, wanted: bool = False) -> tuple[str, str]:
    """(message, remedy) about a thing that is not there.

    Args:
        kind: As the API has it, such as "stream".
        name: Its name; of a subscription TOPIC/NAME.
        vhost: Where it was looked for.
        wanted: Somebody would use it, so that a remedy is to make it.

    """
    noun, noun_command = _NAMES.get(kind, (kind, f"{kind}s"))
    place = "" if kind in _IN_NO_VHOST else f" in vhost '{vhost}'"
    if not place:
        vhost = "/"
    listed = name.rpartition("/")[0] if kind == "subscription" else ""
    remedy = f"correct the name ({command(noun_command, 'list', vhost=vhost, name=listed)} shows all)"
    if wanted and kind in _MADE_BY_NAME:
        remedy += f", or make it: {command(noun_command, 'create', vhost=vhost, name=name)}"
    return f"there is no {noun} '{name}'{place}", remedy


def told_missing(text: str, *, wanted: bool) -> tuple[str, str] | None:
    """`missing`, about the thing that a text of the API says is not there; None: it says something else."""
    found = _TOLD.fullmatch(text)
    return missing(found[1], found[2], found[3] or "/", wanted=wanted) if found else None


def told_different(text: str) -> tuple[str, str] | None:
    """(message, remedy), when a text of the API says that a thing is there already, and is another one."""
    found = _DIFFERENT.fullmatch(text)
    if found is None:
        return None
    argument, kind, name, vhost, wanted, current = found.groups()
    message = f"{kind} '{name}' is there already: its {argument} is {current}, not {wanted}"
    shown = command(f"{kind}s", "show", vhost=vhost, name=name)
    return message, f"{shown} shows it; take another name, or delete it first"


def plain(text: str) -> str:
    """A text of the API, which has RabbitMQ's words, without terms of Erlang, and in one line."""
    return "; ".join(line.rstrip(":") for line in _ERLANG.sub(r"'\1'", text).splitlines() if line)
