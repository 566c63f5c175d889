"""Puts users, sessions and messages of a Mosquitto into a penstock that runs.

Users and sessions go through the management API, messages over MQTT as a user of the move's own, who is
deleted afterwards. Each step is acknowledged before it counts as done.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.extras import install
from penstock.lazy_dataclass import dataclass
from penstock.migrate.mosquitto.acl import MOVER
from penstock.migrate.mosquitto.convert import Conversion
from penstock.migrate.mosquitto.database import Database
from penstock.migrate.mosquitto.plan import Make, Step, steps
from penstock.migrate.progress import Progress
from penstock.migrate.report import MigrationError
from penstock.migrate.users import TOPICS_ONLY, Api, put_users

__all__ = ["Outcome", "Target", "apply", "owner_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to."""

    api: Api
    mqtt: tuple[str, int]
    """Host and port of the MQTT listener."""
    vhost: str
    anonymous: str
    """The user whose are sessions of clients without a user name."""
    timeout_s: float
    """How long the target may be away."""


@dataclass(slots=True)
class Outcome:
    """The result of a move."""

    users: int = 0
    kept: list[str] = field(default_factory=list)
    """Users that were there with tags, and stay as they are."""
    published: int = 0
    sessions: int = 0
    refused: list[str] = field(default_factory=list)
    """Messages and sessions that penstock does not take, with its reason."""
    resumed_at: int = 0
    """Steps that an earlier run had done."""


def owner_in(conversion: Conversion, anonymous: str) -> Callable[[str], str]:
    """The function from a user name in Mosquitto to the user in penstock."""
    known = {user["name"] for user in conversion.users}
    return lambda name: name if name in known else anonymous


def apply(
    conversion: Conversion,
    database: Database | None,
    target: Target,
    state: Path,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Do it.

    Args:
        conversion: The files.
        database: Messages and sessions; None: there are none.
        target: Where to.
        state: The file that says how far it came.
        on_progress: Called with the steps that are done and all steps.

    Raises:
        PenstockError: the target cannot be reached; the same call goes on there.

    """
    outcome = Outcome()
    outcome.users, outcome.kept = put_users(target.api, target.vhost, conversion.users)
    if database is None:
        return outcome
    todo = steps(database, owner_in(conversion, target.anonymous))
    host, port = target.mqtt
    progress = Progress(state, f"{database.digest} to {host}:{port}{target.vhost}")
    outcome.resumed_at = progress.done
    if progress.done < len(todo):
        password = secrets.token_urlsafe(24)
        mover = {"name": MOVER, "password": password, "tags": ""}
        target.api.request("PUT", f"users/{MOVER}", mover)
        permission = {"user": MOVER, "vhost": target.vhost, **TOPICS_ONLY}
        _define(target, permissions=[permission])
        _move(todo, target, password, progress, outcome, on_progress)
        target.api.request("DELETE", f"users/{MOVER}")
    return outcome


def _define(target: Target, **parts: list[dict[str, Any]]) -> None:
    target.api.request("POST", "definitions", parts)


def _move(
    todo: list[Step],
    target: Target,
    password: str,
    progress: Progress,
    outcome: Outcome,
    on_progress: Callable[[int, int], None],
) -> None:
    try:
        from penstock.migrate.mosquitto.publisher import Publisher
    except ImportError as error:
        raise MigrationError(
            f"messages move over MQTT, and {error.name} is not installed",
            remedy=install("migrate"),
        ) from None

    user = f"{target.vhost}:{MOVER}"
    with Publisher(*target.mqtt, user, password, timeout_s=target.timeout_s) as publisher:
        for at in range(progress.done, len(todo)):
            step = todo[at]
            if isinstance(step, Make):
                # A message that is still under way would reach the session, too.
                publisher.flush()
                progress.save(at)
                _make(step, target, outcome)
            else:
                publisher.publish(step.message, retain=step.retain)
                outcome.published += 1
                if publisher.idle:
                    progress.save(at + 1)
            on_progress(at + 1, len(todo))
        publisher.flush()
        progress.save(len(todo))
        outcome.refused += [f"a message to {topic}: {reason}" for topic, reason in publisher.refused]


def _make(step: Make, target: Target, outcome: Outcome) -> None:
    """Make sessions; one that is refused does not keep the others out."""
    now = time.time()
    wanted = [
        {"vhost": target.vhost, **definition}
        for session, definition in step.sessions
        if not 0 < session.expires_at <= now
    ]
    try:
        _define(target, mqtt_sessions=wanted)
        outcome.sessions += len(wanted)
    except PenstockError as error:
        if not _is_refusal(error):
            raise
        for one in wanted:
            _make_one(one, target, outcome)


def _make_one(one: Mapping[str, Any], target: Target, outcome: Outcome) -> None:
    try:
        _define(target, mqtt_sessions=[dict(one)])
        outcome.sessions += 1
    except PenstockError as error:
        if not _is_refusal(error):
            raise
        outcome.refused.append(str(error))


def _is_refusal(error: PenstockError) -> bool:
    return getattr(error, "status", 0) == 400
