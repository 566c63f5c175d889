"""The audit trail: a chain that tells where it was touched, bounded, and there again after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.log_core.state.tables import Tables
from penstock.router.audit import Audit, AuditOptions, Verdict
from penstock.router.authentication.users import AuthOptions
from penstock.router.broker import BrokerOptions
from penstock.router.errors import AuthenticationRefused
from tests.unit.router.conftest import World


def verdict_of(audit: Audit) -> Verdict:
    found = [one for one in audit.verify() if one is not None]
    assert len(found) == 1
    return found[0]


def note(world: World, count: int, **more: object) -> None:
    for number in range(count):
        world.broker.audit.note(
            "user.put", user="admin", peer="10.0.0.1", protocol="http", target={"user": str(number)}, **more
        )  # type: ignore[arg-type]


def test_entries_are_chained_and_come_back(world: World) -> None:
    assert verdict_of(world.broker.audit) == Verdict(0, 0, 0, "0" * 64)
    note(world, 450, before=None, after={"tags": ["x"], "odd": b"\xff", "name": "\udcff"})
    audit = world.broker.audit
    entries = [audit.entry(key) for key in audit.keys()]
    for before, after in pairwise(entries):
        assert before is not None and after is not None and after["prev"] == before["hash"]
    verdict = verdict_of(audit)
    assert (verdict.entries, verdict.first, verdict.last, verdict.broken) == (450, 1, 450, "")
    world.restart()
    assert verdict_of(world.broker.audit) == verdict
    note(world, 1)
    assert verdict_of(world.broker.audit).last == 451


def rewrite(rows: Tables, key: bytes) -> None:
    entry = json.loads(rows.get("audit", key) or b"")
    rows.put("audit", key, json.dumps({**entry, "user": "nobody"}).encode())


@pytest.mark.parametrize(
    ("touch", "told"),
    [
        (lambda rows, keys: rewrite(rows, keys[3]), "entry 5 does not"),
        (lambda rows, keys: rows.delete("audit", keys[3]), "entry 4 is missing"),
        (lambda rows, keys: rows.delete("audit", keys[0]), "entry 1 is missing"),
        (lambda rows, keys: rows.delete("audit", keys[9]), "entries 10 to 10 are missing"),
        (lambda rows, keys: rewrite(rows, keys[9]), "entry 10 is not"),
        (lambda rows, keys: rows.put("audit", keys[5], b"{"), "entry 6 cannot be read"),
        (lambda rows, keys: rows.put("audit", keys[5], rows.get("audit", keys[6])), "entry 6 says"),
    ],
)  # fmt: skip
def test_tampering_is_found(world: World, touch: Callable[..., object], told: str) -> None:
    note(world, 10)
    touch(world.log.tables, world.broker.audit.keys())
    assert verdict_of(world.broker.audit).broken.startswith(told)
    world.restart()
    assert verdict_of(world.broker.audit).broken.startswith(told)


def options(**audit: float) -> BrokerOptions:
    return BrokerOptions(auth=AuthOptions(default_user=""), audit=AuditOptions(**audit))  # type: ignore[arg-type]


def test_the_oldest_go_and_the_chain_begins_later(tmp_path: Path) -> None:
    world = World(tmp_path, options(retention_bytes=10_000))
    note(world, 200)
    keys = world.broker.audit.keys()
    kept = sum(len(world.log.tables.get("audit", key) or b"") for key in keys)
    assert 9_000 < kept <= 10_000
    verdict = verdict_of(world.broker.audit)
    assert verdict.broken == "" and verdict.last == 200 and verdict.first == 201 - len(keys) > 1
    world.log.tables.delete("audit", keys[0])
    assert "is missing" in verdict_of(world.broker.audit).broken, "who takes one more away is found out"
    world.log.close_sync()


def test_entries_are_kept_for_a_time(tmp_path: Path) -> None:
    world = World(tmp_path, options(retention_s=100))
    note(world, 5)
    world.clock.now += 101
    note(world, 1)
    assert len(world.broker.audit.keys()) == 1
    world.clock.now += 101
    world.restart()
    assert verdict_of(world.broker.audit).last == 6, "the newest stays: it is the end of the chain"
    world.log.close_sync()


def test_a_large_change_is_recorded_without_before_and_after(world: World) -> None:
    note(world, 1, after={"x": "y" * 70_000})
    (key,) = world.broker.audit.keys()
    entry = world.broker.audit.entry(key)
    assert entry is not None and entry["after"] is None and "left out" in entry["detail"]


def test_a_flood_of_refused_logins_becomes_a_number(world: World) -> None:
    for number in range(500):
        world.broker.users.refused("amqp", AuthenticationRefused(f"u{number}", "credentials"), "10.0.0.1")
    audit = world.broker.audit
    assert len(audit.keys()) == 60
    world.clock.now += 61
    world.broker.users.refused("mqtt", AuthenticationRefused("late", "limit"), "10.0.0.1")
    entries = [audit.entry(key) for key in audit.keys()[60:]]
    assert entries[0] is not None and entries[0]["detail"].startswith("440 more were refused")
    assert entries[1] is not None and entries[1]["user"] == "late"
    assert verdict_of(audit).broken == ""
