"""`penstock doctor`: what is unsafe or wrong with a configuration, and with the gateway that runs.

Each finding says what is the matter and what to do. The exit code is 1 when there is an error.

    error     something does not work, or messages may be lost or read by others
    warning   somebody should know
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.hints import command
from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client
from penstock.cli.running.nouns import add_target
from penstock.cli.sources import add_sources, loaded
from penstock.cli.terminal import folded
from penstock.config.findings import (
    Finding,
    alarm,
    folder_findings,
    open_files_limit,
    open_files_used,
    unsafe_settings,
)

if TYPE_CHECKING:
    from penstock.config import Config

__all__ = ["COMMANDS", "examine", "examine_gateway"]

_CHECKS: Final = ("alarms", "virtual-hosts", "ready-to-serve-clients")


def _add_doctor(doctor: Parser) -> None:
    doctor.description = (
        "Say what is unsafe or wrong with the configuration, this machine, and the gateway that answers at "
        "--url. The exit code is 1 when there is an error."
    )
    doctor.add_argument(
        "--probe",
        action="store_true",
        help="only ask whether that gateway is ready, as health checks do: no login, exit code 0 or 1",
    )
    add_sources(doctor)
    add_target(doctor)
    doctor.set_defaults(run=_doctor)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _named(kind: str, item: dict[str, Any]) -> str:
    """A thing of a vhost; / goes without saying."""
    return f"{kind} {item['name']}" + ("" if item["vhost"] == "/" else f" of vhost {item['vhost']}")


def _doctor(parsed: argparse.Namespace) -> int:
    if parsed.probe:
        with Client(parsed.url) as client:
            print("\n".join(client.lines("/readyz")))
        return 0
    found = list(examine(loaded(parsed).config))
    try:
        with Client(parsed.url) as client:
            found += examine_gateway(client)
            print(f"gateway at {client.address}: answers")
    except ApiError as error:
        if error.status:
            found.append(Finding("error", "gateway", str(error), "log in as an administrator, with --url"))
        else:
            print("no gateway was asked: none answers at --url")
    for one in sorted(found, key=lambda each: each.level):
        print(folded(f"{one.level}: {one.about}: {one.text}", sys.stdout))
        print(folded(f"    {one.remedy}", sys.stdout))
    errors = sum(one.level == "error" for one in found)
    print(f"{_counted(errors, 'error')}, {_counted(len(found) - errors, 'warning')}")
    return 1 if errors else 0


# The configuration


def examine(config: Config) -> Iterator[Finding]:
    """Find unsafe settings in a configuration and on this machine."""
    yield from unsafe_settings(config)
    yield from folder_findings(Path(config.log.data_dir))
    yield from open_files_limit(config.server.max_connections)


# The gateway


def _show(vhost: str, name: str) -> str:
    """The command that shows a queue, or a subscription by the name that lists have for it."""
    kind, prefix, of_topic = name.partition("subscription-")
    if not kind and prefix and "/" in of_topic:
        return command("subs", "show", vhost=vhost, name=of_topic)
    return command("queues", "show", vhost=vhost, name=name)


def examine_gateway(client: Client) -> Iterator[Finding]:
    """Ask a running gateway about itself."""
    for check in _CHECKS:
        try:
            client.get(f"health/checks/{check}")
        except ApiError as error:
            if error.status != 503:
                raise
            yield Finding("error", f"health check {check}", str(error), "see the gateway's log")
    for node in client.get("nodes"):
        for found in (alarm("memory"), alarm("disk")):
            if node[found.about]:
                yield found
        yield from open_files_used(node["fd_used"], node["fd_total"])
    for queue in client.get("queues"):
        if queue["messages_ready"] > 0 and not queue["consumers"] and queue["type"] != "stream":
            yield Finding(
                "warning",
                _named("queue", queue),
                f"{_counted(queue['messages_ready'], 'message')} and no consumer",
                f"start its consumer; {_show(queue['vhost'], queue['name'])} shows it",
            )
    for hook in client.get("webhooks"):
        about = _named("webhook", hook)
        text = f"{hook['state']}: {hook['reason'] or hook['last_error']}"
        if hook["state"] in ("disabled", "open"):
            attempts = command("webhooks", "attempts", vhost=hook["vhost"], name=hook["name"])
            yield Finding("warning", about, text, f"{attempts} shows why")
        elif hook["state"] == "broken":
            show = command("webhooks", "show", vhost=hook["vhost"], name=hook["name"])
            yield Finding("error", about, text, f"change its settings, which {show} shows, or the options")


COMMANDS: Final[dict[str, Builder]] = {"doctor": _add_doctor}
