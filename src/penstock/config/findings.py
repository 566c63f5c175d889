"""Findings: unsafe settings, and figures of a machine near a limit, each with a remedy.

`penstock doctor` looks before a start, `GET /api/findings` at a gateway that runs. They share these checks,
which are functions of a configuration or of figures. Only `folder_findings` reads the disk.
"""

from __future__ import annotations

import ipaddress
import os
import resource
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.config.options import Config

__all__ = [
    "KNOWN_PASSWORD",
    "Finding",
    "alarm",
    "folder_findings",
    "open_files_limit",
    "open_files_used",
    "unsafe_settings",
]

KNOWN_PASSWORD: Final = "auth.default_password"
"""The option of the finding that somebody may log in with the password everybody knows."""

_FILES: Final = 4096
_FILES_FULL: Final = 0.9
_FREE_PARTS: Final = 20
"""A warning below one part of so many."""
_PLAIN: Final = (
    ("amqp", "address", "amqp.tls_listen"),
    ("mqtt", "address", "mqtt.tls_listen"),
    ("http", "address", "http.tls_listen"),
    ("management", "address", "management.tls_listen"),
)
_ALARMS: Final = {
    "memory": ("mem_alarm", "raise server.memory_high_watermark; `penstock top` shows what takes it"),
    "disk": ("disk_free_alarm", "free disk space"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    An error: something does not work, or messages may be lost or read by others. A warning: somebody should
    know. An info: it is over, or expected.
    """

    level: Literal["error", "warning", "info"]
    about: str
    """The option, or the part that was looked at."""
    text: str
    remedy: str


# The configuration


def unsafe_settings(config: Config) -> Iterator[Finding]:
    """Find unsafe settings of a configuration."""
    yield from _exposure(config)
    yield from _users(config)
    if config.log.fsync == "never":
        yield Finding(
            "error",
            "log.fsync",
            "never: confirmed messages are lost when the power fails",
            "leave it out, unless nothing may be lost by that",
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
            KNOWN_PASSWORD,
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


# The machine


def folder_findings(folder: Path) -> Iterator[Finding]:
    """Look at the data folder and its disk; nothing is found where there is no such folder."""
    if not folder.is_dir():
        return
    mode = folder.stat().st_mode & 0o077
    if mode:
        yield Finding(
            "error",
            "log.data_dir",
            f"others than its owner may look into {folder} (mode {mode:03o} beyond the owner's)",
            f"`chmod 0700 {shlex.quote(str(folder))}` closes it",
        )
    disk = os.statvfs(folder)
    if disk.f_bavail < disk.f_blocks // _FREE_PARTS:
        yield Finding(
            "warning",
            "log.data_dir",
            f"{disk.f_bavail * 100 // disk.f_blocks} % of its disk is free",
            "free some, or lower log.traffic_retention_bytes",
        )


def open_files_limit(max_connections: int) -> Iterator[Finding]:
    """Whether this process may open as many files as there may be connections; 0: there is no such limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < max(_FILES, max_connections):
        yield Finding(
            "warning",
            "open files",
            f"at most {most}, and each connection needs one",
            "raise LimitNOFILE of the service, or ulimit -Hn",
        )


def open_files_used(used: int, total: int) -> Iterator[Finding]:
    """Whether a gateway has nearly as many files open as it may."""
    if used > _FILES_FULL * total:
        yield Finding("warning", "open files", f"{used} of {total}", "raise LimitNOFILE")


def alarm(resource_name: str) -> Finding:
    """The alarm of a resource, "memory" or "disk", by its name in the management API."""
    about, remedy = _ALARMS[resource_name]
    return Finding("error", about, "publishers wait", remedy)
