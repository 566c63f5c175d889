"""`penstock tokens ...` and `penstock certificates ...`: access tokens, and the certificates of listeners."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import Client, segment
from penstock.cli.running.nouns import OUTPUT, argument, columns, verbs_of
from penstock.cli.running.paths import count
from penstock.cli.tables import print_list, print_record

__all__ = ["COMMANDS"]

_DAY_S: Final = 86_400


def _add_tokens(parser: Parser) -> None:
    user = argument("--user", help="another user's; for administrators")
    name = argument("name", metavar="NAME")
    tokens = verbs_of(parser)
    tokens("list", _tokens, user, columns("name,user,made_at,expires_at"), help="list tokens that are good")
    tokens(
        "create",
        _issue,
        user,
        name,
        argument("--days", type=count, default=30, help="good for so many days (default: %(default)s)"),
        OUTPUT,
        help="make a token, which is printed now and never again",
    )
    tokens("revoke", _revoke, user, name, help="end a token")


def _of(parsed: argparse.Namespace) -> str:
    return f"?user={segment(parsed.user)}" if parsed.user else ""


def _tokens(client: Client, parsed: argparse.Namespace) -> None:
    print_list(client.get(f"/v1/tokens{_of(parsed)}")["tokens"], parsed.columns, parsed.output)


def _issue(client: Client, parsed: argparse.Namespace) -> None:
    body = {"name": parsed.name, "ttl_s": parsed.days * _DAY_S} | (
        {"user": parsed.user} if parsed.user else {}
    )
    print_record(client.request("POST", "/v1/tokens", body), parsed.output)


def _revoke(client: Client, parsed: argparse.Namespace) -> None:
    client.request("DELETE", f"/v1/tokens/{segment(parsed.name)}{_of(parsed)}")


def _add_certificates(parser: Parser) -> None:
    certificates = verbs_of(parser)
    certificates(
        "list",
        _certificates,
        columns("host,subject,names,not_after,file"),
        help="list the certificates that listeners show",
    )
    certificates("reload", _reload, help="read their files again; if they are no good, the old ones hold")


def _certificates(client: Client, parsed: argparse.Namespace) -> None:
    rows = [
        {"host": chain["name"], "file": chain["file"], **one}
        for chain in client.get("certificates")["chains"]
        for one in chain["certificates"]
    ]
    print_list(rows, parsed.columns, parsed.output)


def _reload(client: Client, parsed: argparse.Namespace) -> None:
    del parsed
    client.request("POST", "certificates/reload", {})


COMMANDS: Final[dict[str, Builder]] = {"certificates": _add_certificates, "tokens": _add_tokens}
