"""Says what a move would bring out of mosquitto.db."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.migrate.mosquitto.database import Database
from penstock.migrate.mosquitto.plan import Publish, is_waiting, steps
from penstock.migrate.report import Place, Report

__all__ = ["summarize"]


def summarize(path: Path, database: Database, owner: Callable[[str], str], report: Report) -> None:
    """Note the content of a database."""
    whole = Place(str(path), 0)
    plan = steps(database, owner)
    waiting = sum(1 for held in database.held if is_waiting(held))
    incoming = sum(1 for held in database.held if not held.outgoing)
    report.add(whole, f"{len(database.retained)} retained messages", "moved", "published as retained")
    report.add(
        whole,
        f"{len(database.sessions)} sessions with {len(database.subscriptions)} subscriptions",
        "moved",
        "made for their users; clients find them when they connect",
    )
    report.add(
        whole,
        f"{waiting} messages that wait in sessions",
        "moved",
        f"published once each: {sum(isinstance(one, Publish) and not one.retain for one in plan)} messages",
    )
    if incoming:
        note = "published now; the client's PUBREL is acknowledged"
        report.add(whole, f"{incoming} messages of QoS 2 that are not released", "moved", note)
    received = sum(1 for held in database.held if held.outgoing) - waiting
    if received:
        report.add(
            whole,
            f"{received} messages of QoS 2 whose end is not acknowledged",
            "left out",
            "the clients have them already",
        )
    for session in sorted(database.sessions.values(), key=lambda session: session.client_id):
        user = owner(session.username)
        if session.username and user != session.username:
            note = f"no password_file has the user '{session.username}'; the session is of '{user}'"
            report.add(whole, f"session of client {session.client_id}", "moved", note)
