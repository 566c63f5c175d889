"""GET /api/findings: what a gateway finds out about itself, errors first.

    {"level": "error", "what": "log.fsync", "text": "never: ...", "remedy": "leave it out, ..."}

Settings and the machine are looked at by the checks of `penstock doctor` (`config.findings`), so the words
are the same. The rest only a running gateway knows. Files are read on a thread; certificates once. Each of
several workers tells of its own process; the one that is asked tells of what all have in common.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.config.findings import (
    KNOWN_PASSWORD,
    Finding,
    alarm,
    folder_findings,
    open_files_limit,
    open_files_used,
)
from penstock.memory import used_bytes
from penstock.protocols.http.management.history import OF_GATEWAY
from penstock.protocols.http.management.node import host
from penstock.protocols.http.management.node.certificates import read_chain
from penstock.protocols.http.management.node.overview import FIGURES
from penstock.protocols.http.management.rates import GAUGES
from penstock.protocols.http.shared.lists import reply_list
from penstock.router.authentication.passwords import verify_password

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.log_core.log import Log
    from penstock.protocols.http.management.context import Management
    from penstock.protocols.http.management.node.host import HostFigures
    from penstock.protocols.http.server.messages import Request, Response
    from penstock.protocols.tls.contexts import Tls
    from penstock.router.authentication.users import Users

__all__ = ["LEVELS", "certificate_findings", "disk_findings", "log_findings", "reply_findings"]

LEVELS: Final = ("error", "warning", "info")

_ENDS_WITHIN_S: Final = 30 * 86_400
_FULL_WITHIN_S: Final = 86_400
_DISK_SPAN_S: Final = 3600
"""The time over which the disk's rate is the mean."""
_DISK_LEAST_S: Final = 600
"""Less of it says nothing: files of the log are made at their full size."""
_DISK_STEP_S: Final = 60
_NEAR: Final = 0.9
_CLOCK_S: Final = 60.0
_KNOWN: Final = b"guest"


async def reply_findings(api: Management, request: Request) -> Response:
    """The answer to a request of somebody who may see the whole gateway."""
    figures = await asyncio.to_thread(host.read, api.data_dir)
    found = list(_of_process(api, figures))
    if not request.part:
        found += [
            *await _of_settings(api),
            *await asyncio.to_thread(_of_files, api.data_dir, api.tls),
            *_in_common(api, figures.disk_free),
        ]
    return await reply_list(request, found, _shown, _order)


def _shown(one: Finding) -> dict[str, Any]:
    return {"level": one.level, "what": one.about, "text": one.text, "remedy": one.remedy}


def _order(one: Finding) -> tuple[str, ...]:
    return str(LEVELS.index(one.level)), one.about


# Common to all workers


async def _of_settings(api: Management) -> list[Finding]:
    found = list(api.settings_findings())
    if any(one.about == KNOWN_PASSWORD for one in found) and not await _is_known(api.broker.users):
        found = [one for one in found if one.about != KNOWN_PASSWORD]
    return found


def _of_files(data_dir: Path, tls: Tls | None) -> list[Finding]:
    found = list(folder_findings(data_dir))
    if tls is not None:
        for chain in tls.served:
            found += certificate_findings(chain.file, chain.pem, time.time())
    return found


def _in_common(api: Management, free: int) -> Iterator[Finding]:
    limits = [front_end.max_connections for front_end in api.registry.front_ends.values()]
    yield from open_files_limit(max(limits, default=0))
    yield from disk_findings(free, api.disk_free_limit, _lost_per_s(api, free))
    yield from log_findings(api.broker.log)
    if api.tls is not None and api.tls.fault:
        yield Finding(
            "error",
            "tls",
            f"the files were changed and cannot be used, so the old certificates hold: {api.tls.fault}",
            "correct the files",
        )


async def _is_known(users: Users) -> bool:
    """Whether the default user still has the password of the manual."""
    stored = users.stored(users.default_user)
    return bool(stored) and await asyncio.to_thread(_has_known, stored)


@lru_cache(4)
def _has_known(stored: str) -> bool:
    return verify_password(stored, _KNOWN)


def _lost_per_s(api: Management, free: int) -> float:
    """Bytes per second by which the free space became less; 0 while that is not known."""
    now_are = [free if name == "disk_free" else 0 for name in FIGURES]
    samples = api.sampler.history.samples(GAUGES, OF_GATEWAY, now_are, _DISK_SPAN_S, _DISK_STEP_S)
    if not samples:
        return 0.0
    (last_ms, _), (first_ms, first) = samples[0], samples[-1]
    span_s = (last_ms - first_ms) / 1000
    return (first[FIGURES.index("disk_free")] - free) / span_s if span_s >= _DISK_LEAST_S else 0.0


def disk_findings(free: int, least: int, lost_per_s: float) -> Iterator[Finding]:
    """Whether publishers will soon wait for the disk: `least` bytes must be free.

    Below these, the alarm of the disk is the finding.
    """
    left = free - least
    if left < 0:
        return
    if lost_per_s > 0 and left / lost_per_s < _FULL_WITHIN_S:
        hours = left / lost_per_s / 3600
        yield Finding(
            "warning",
            "log.min_free_bytes",
            f"{_size(free)} are free and {_size(lost_per_s * 3600)} fewer each hour: "
            f"publishers wait in about {hours:.1f} hours",
            "free disk space, or lower log.traffic_retention_bytes",
        )
    elif free < 2 * least:
        yield Finding(
            "warning",
            "log.min_free_bytes",
            f"{_size(free)} are free: publishers wait below {_size(least)}",
            "free disk space, or lower log.traffic_retention_bytes",
        )


def certificate_findings(file: str, pem: bytes, now: float) -> Iterator[Finding]:
    """Whether a certificate of a chain ends within 30 days, or has ended."""
    for subject, ends in _ends(pem):
        if ends < now + _ENDS_WITHIN_S:
            on = time.strftime("%Y-%m-%d", time.gmtime(ends))
            told = f"{subject} ended on {on}: clients that verify it are refused"
            yield Finding(
                "error" if ends < now else "warning",
                "certificate",
                told if ends < now else f"{subject} ends on {on}",
                f"put another certificate into {file}",
            )


@lru_cache(64)
def _ends(pem: bytes) -> tuple[tuple[str, float], ...]:
    """Subject and end of each certificate; none of a chain that cannot be described."""
    try:
        chain = read_chain(pem)
    except ValueError:
        return ()
    return tuple((one.subject.rfc4514_string(), one.not_valid_after_utc.timestamp()) for one in chain)


def log_findings(log: Log) -> Iterator[Finding]:
    """Whether the log has lost something, or its last stop was none."""
    damages = log.damages.found()
    if damages:
        yield Finding(
            "error",
            "log_damage",
            f"damaged places of the log are skipped: {len(damages)}; the first: {damages[0]}",
            "stop the gateway; `penstock log repair` says what is lost and takes it out",
        )
    recovery = log.recovery
    for hole in recovery.holes:
        yield Finding(
            "warning", "log.salvage", f"the start went on without {hole}", "publish again what was lost"
        )
    for fault in recovery.warnings:
        yield Finding("warning", "recovery", fault, "nothing: it was put right at the start")
    if not recovery.clean:
        yield Finding(
            "info",
            "recovery",
            f"the run before did not stop cleanly; {recovery.truncated_bytes} bytes at the end of the log, "
            "which nobody was promised, were cut off",
            "nothing after a power cut; otherwise see why the process was killed",
        )


# Of each process


def _of_process(api: Management, figures: HostFigures) -> Iterator[Finding]:
    for resource in api.broker.log.alarms:
        yield _alarm(resource)
    yield from open_files_used(figures.fd_used, figures.fd_total)
    yield from _near_memory(api)
    yield from _moved_clock(api)


def _alarm(resource: str) -> Finding:
    if resource in ("memory", "disk"):
        return alarm(resource)
    return Finding("error", resource, "publishers wait", "see the gateway's log")


def _near_memory(api: Management) -> Iterator[Finding]:
    limit, used = api.memory_limit, used_bytes()
    if limit and used > _NEAR * limit and "memory" not in api.broker.log.alarms:
        yield Finding(
            "warning",
            "server.memory_high_watermark",
            f"{_size(used)} are in use: publishers wait above {_size(limit)}",
            alarm("memory").remedy,
        )


def _moved_clock(api: Management) -> Iterator[Finding]:
    moved_s = api.clock_moved_s
    if math.fabs(moved_s) > _CLOCK_S:
        yield Finding(
            "warning",
            "clock",
            f"the machine's clock was moved by {moved_s:+.0f} s since the start, or the machine slept",
            "keep the time by NTP: delays and times to live follow the clock",
        )


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"
