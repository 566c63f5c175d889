"""`penstock doctor`: what is unsafe or wrong with a configuration, and with the gateway that runs.

Each finding says what is the matter and what to do. The exit code is 1 when there is an error.

    error     something does not work, or messages may be lost or read by others
    warning   somebody should know
"""

from __future__ import annotations

import argparse
import ipaddress
import resource
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.cli.hints import command
from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client
from penstock.cli.running.nouns import add_target
from penstock.cli.sources import add_sources, loaded
from penstock.cli.terminal import folded
from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.config import Config

__all__ = ["COMMANDS", "Finding", "examine", "examine_gateway"]

_FILES: Final = 4096
_PLAIN: Final = (
    ("amqp", "address", "amqp.tls_listen"),
    ("mqtt", "address", "mqtt.tls_listen"),
    ("http", "address", "http.tls_listen"),
    ("management", "address", "management.tls_listen"),
)
_CHECKS: Final = ("alarms", "virtual-hosts", "ready-to-serve-clients")


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    level: Literal["error", "warning"]
    about: str
    """The option, or what was looked at."""
    text: str
    remedy: str


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
    yield from _exposure(config)
    yield from _users(config)
    if config.log.fsync == "never":
        yield Finding(
            "error",
            "log.fsync",
            "never: confirmed messages are lost when the power fails",
            "leave it out, unless nothing may be lost by that",
        )
    folder = Path(config.log.data_dir)
    if folder.is_dir():
        mode = folder.stat().st_mode & 0o077
        if mode:
            yield Finding(
                "error",
                "log.data_dir",
                f"others than its owner may look into {folder} (mode {mode:03o} beyond the owner's)",
                f"`chmod 0700 {shlex.quote(str(folder))}` closes it",
            )
        usage = shutil.disk_usage(folder)
        if usage.free < usage.total // 20:
            yield Finding(
                "warning",
                "log.data_dir",
                f"{usage.free * 100 // usage.total} % of its disk is free",
                "free some, or lower log.traffic_retention_bytes",
            )
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < max(_FILES, config.server.max_connections):
        yield Finding(
            "warning",
            "open files",
            f"at most {most}, and each connection needs one",
            "raise LimitNOFILE of the service, or ulimit -Hn",
        )


def _exposure(config: Config) -> Iterator[Finding]:
    for section, option, secure in _PLAIN:
        address = getattr(getattr(config, section), option)
        if address is not None and not _is_loopback(address.host):
            yield Finding(
                "error",
                f"{section}.listen",
                f"{address} is open to other machines without TLS: passwords travel as they are",
                f"set {secure}, or listen on 127.0.0.1",
            )
    address = config.metrics.address
    if address is not None and not _is_loopback(address.host):
        yield Finding(
            "warning",
            "metrics.listen",
            f"{address} is open to other machines without TLS",
            "let only the collector reach it",
        )


def _users(config: Config) -> Iterator[Finding]:
    auth = config.auth
    known = auth.default_user and auth.default_password == "guest"
    if known and auth.default_user not in auth.loopback_users:
        yield Finding(
            "error",
            "auth.default_password",
            f"user '{auth.default_user}' may log in from anywhere with the password everybody knows",
            "set another password, or leave the user in auth.loopback_users",
        )
    for protocol, allowed in (("amqp", config.amqp.allow_anonymous), ("mqtt", config.mqtt.allow_anonymous)):
        if allowed is True:
            yield Finding(
                "error",
                f"{protocol}.allow_anonymous",
                f"true: {protocol.upper()} clients of any machine need no login",
                'set "loopback" or false',
            )
    unchecked = config.mqtt.allow_any_login
    if unchecked is not False:
        whose = "any machine" if unchecked is True else "this machine"
        yield Finding(
            "error" if unchecked is True else "warning",
            "mqtt.allow_any_login",
            f"MQTT clients of {whose} get in with any user name and password",
            "make users with `penstock users create NAME`, and set it to false",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
        for alarm, remedy in (
            ("mem_alarm", "raise server.memory_high_watermark; `penstock top` shows what takes it"),
            ("disk_free_alarm", "free disk space"),
        ):
            if node[alarm]:
                yield Finding("error", alarm, "publishers wait", remedy)
        if node["fd_used"] > 0.9 * node["fd_total"]:
            yield Finding(
                "warning", "open files", f"{node['fd_used']} of {node['fd_total']}", "raise LimitNOFILE"
            )
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
