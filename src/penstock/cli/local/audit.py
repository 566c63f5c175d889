"""`penstock audit ...`: who administered what, and whether that record is whole."""

from __future__ import annotations

import argparse
from typing import Final
from urllib.parse import urlencode

from penstock.cli.hints import plain
from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client
from penstock.cli.running.nouns import argument, columns, verbs_of
from penstock.cli.tables import print_list
from penstock.errors import ConfigError

__all__ = ["COMMANDS"]

_SHOWN = "time,user,peer,action,target,result,detail"
_VERDICT = "worker,whole,entries,first,last,hash,broken"


def _add_audit(parser: Parser) -> None:
    audit = verbs_of(parser)
    audit(
        "list",
        _list,
        argument("--from", dest="since", default="-1D", help="a time or an interval (default: %(default)s)"),
        argument("--user", help="what this user did"),
        argument("--action", help='such as "user", "user.put", "login"'),
        columns(_SHOWN),
        help="entries of the audit trail, the oldest first",
    )
    audit(
        "verify",
        _verify,
        argument(
            "--expect",
            action="append",
            default=[],
            metavar="[WORKER:]SEQ:HASH",
            help="the hash that an entry had once; may be repeated",
        ),
        columns(_VERDICT),
        help="whether the chain of hashes is whole; ends with 1 when it is not",
    )


def _list(client: Client, parsed: argparse.Namespace) -> None:
    asked = {"from": parsed.since, "user": parsed.user, "action": parsed.action}
    query = urlencode({name: value for name, value in asked.items() if value})
    print_list([_timed(entry) for entry in _entries(client, query)], parsed.columns, parsed.output)


def _entries(client: Client, query: str) -> list[dict[str, object]]:
    found = client.get(f"/api/audit?{query}")
    if not isinstance(found, list):
        raise ApiError("the answer is no audit trail", 0)
    return found


def _timed(entry: dict[str, object]) -> dict[str, object]:
    from datetime import UTC, datetime

    at = entry["at"]
    assert isinstance(at, int)
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        **entry,
        "detail": plain(str(entry["detail"])),
        "time": when.replace("+00:00", "Z").replace("T", " "),
    }


def _verify(client: Client, parsed: argparse.Namespace) -> None:
    verdicts = client.get("/api/audit/verify")
    if not isinstance(verdicts, list):
        raise ApiError("the answer is no verdict", 0)
    print_list(verdicts, parsed.columns, parsed.output)
    broken = [str(one["broken"]) for one in verdicts if not one["whole"]]
    if parsed.expect:
        known = {(str(one["worker"]), str(one["seq"])): one["hash"] for one in _entries(client, "")}
        for text in parsed.expect:
            *place, expected = text.split(":")
            if len(place) not in (1, 2):
                raise ConfigError(f"{text} is not SEQ:HASH", remedy="take both from `penstock audit verify`")
            worker, seq = place if len(place) == 2 else ("0", place[0])
            found = known.get((worker, seq))
            if found != expected:
                broken.append(f"entry {seq} {'is not there' if found is None else 'has another hash'}")
    if broken:
        raise ApiError(f"the audit trail is broken: {'; '.join(broken)}", 0)


COMMANDS: Final[dict[str, Builder]] = {"audit": _add_audit}
