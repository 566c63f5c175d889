"""An export of EMQX 4: what becomes of its users, rules and other parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.migrate.emqx.export import Conversion, convert
from penstock.migrate.report import MigrationError
from penstock.protocols.mqtt.auth.acl import AclFile
from penstock.router.authentication.passwords import imported_hash, verify_password

_PUBLIC = "ARLrzTRhZTI1MzgxNjdjMDU5ODFhZDU3ZTdmNzJiOWM5MWUwMTFkNDk4OGUyZWUyYmU0ZTE2ZTg2OWNhMGQyYWQ5ZmU="
"""The password `public`, as an EMQX 4.2 exported it."""


def converted(folder: Path, **parts: Any) -> Conversion:
    file = folder / "emqx-export.json"
    file.write_text(json.dumps({"version": "4.4", "date": "2022-05-24 10:51:39", **parts}))
    return convert(file)


def fates(made: Conversion) -> list[tuple[str, str]]:
    return [(entry.text, entry.fate) for entry in made.report.entries]


@pytest.mark.parametrize(
    "parts",
    [
        {"auth_mnesia": [{"login": "ann", "type": "username", "password": _PUBLIC, "created_at": 1}]},
        {"auth_username": [{"username": "ann", "password": _PUBLIC}]},
    ],
)
def test_a_user_keeps_the_password(tmp_path: Path, parts: dict[str, Any]) -> None:
    (user,) = converted(tmp_path, **parts).users
    stored = imported_hash(user["password_hash"], user["hashing_algorithm"])
    assert user["name"] == "ann" and user["tags"] == []
    assert verify_password(stored, b"public") and not verify_password(stored, b"Public")


def test_a_password_of_another_kind_and_client_ids_are_said(tmp_path: Path) -> None:
    made = converted(
        tmp_path,
        auth_mnesia=[
            {"login": "plain", "type": "username", "password": "c2FsdHNlY3JldA=="},
            {"login": "c", "type": "clientid", "password": _PUBLIC},
        ],
        auth_clientid=[{"clientid": "d", "password": _PUBLIC}],
    )
    assert made.users == []
    assert fates(made) == [
        ("auth_mnesia plain:********", "wrong"),
        ("auth_mnesia c:********", "left out"),
        ("auth_clientid d:********", "left out"),
    ]


def test_rules_become_lines_of_an_acl_file(tmp_path: Path) -> None:
    def rule(kind: str, name: str, topic: str, action: str, access: str = "allow") -> dict[str, str]:
        named = {} if kind == "all" else {"type_value": name}
        return {"type": kind, **named, "topic": topic, "action": action, "access": access}

    made = converted(
        tmp_path,
        auth_mnesia=[{"login": "root", "password": _PUBLIC, "is_superuser": True}],
        acl_mnesia=[
            rule("username", "ann", "a/#", "sub"),
            rule("username", "ann", "a/%u", "pub"),
            rule("username", "ann", "secret", "pub", "deny"),
            rule("username", "ann", "secret", "sub", "deny"),
            rule("all", "", "all/%c", "pubsub"),
            {"login": "old", "topic": "t", "action": "pub", "allow": True},
            rule("clientid", "c", "t", "sub"),
            rule("username", "ann", "half", "sub", "deny"),
            rule("username", "ann", "x\nuser root", "sub"),
            rule("username", "ann", "not/#/valid", "sub"),
        ],
    )
    assert made.acl.splitlines() == [
        "pattern readwrite all/%c",
        "user root",
        "topic readwrite #",
        "user ann",
        "topic read a/#",
        "topic write a/ann",
        "topic deny secret",
        "user old",
        "topic write t",
    ]
    AclFile(made.acl, "acl", "")
    left = [text for text, fate in fates(made) if fate == "left out"]
    assert left == [
        "acl_mnesia clientid c sub t",
        "acl_mnesia username ann sub half",
        "acl_mnesia username ann sub x\nuser root",
        "acl_mnesia username ann sub not/#/valid",
    ]


def test_the_other_parts_are_named(tmp_path: Path) -> None:
    made = converted(
        tmp_path,
        users=[{"username": "admin", "password": "02BzoSYaTxkscy2MDtU92EbX7b4="}],
        rules=[{"id": "rule:1"}],
        blacklist=[{"who": {"clientid": "c"}}],
        modules=[],
        novelty=[],
    )
    assert fates(made) == [
        ("users admin", "left out"),
        ("blacklist " + json.dumps({"clientid": "c"}), "left out"),
        ("rules rule:1", "left out"),
        ("novelty", "unknown"),
    ]
    assert "02Bzo" not in str(made.report.entries)


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON", '{"version": "4.4", "rules": {}}'])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "export.json"
    file.write_text(text)
    with pytest.raises(MigrationError):
        convert(file)


def test_an_export_of_emqx_5_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="EMQX 5"):
        convert(tmp_path / "emqx-export-2024-01-01.tar.gz")
