"""The option kind "list of users": name, password or its hash, tags."""

from __future__ import annotations

import base64
import binascii

from penstock.config.kinds import BadValue, Kind, inline_tables, shown, toml_value
from penstock.lazy_dataclass import dataclass

__all__ = ["User", "Users"]

_HASH_SIZES = (4 + 32, 4 + 64, 4 + 16)  # a salt of 4 bytes, then SHA-256, SHA-512 or MD5


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user of the gateway. Exactly one of `password` and `password_hash` is set."""

    name: str
    """1 to 255 bytes of UTF-8."""
    password: str | None = None
    """In the clear; it is hashed before it is kept."""
    password_hash: str | None = None
    """Base64 of a 4-byte salt and SHA-256, SHA-512 or MD5 of salt + password, as RabbitMQ exports it."""
    tags: tuple[str, ...] = ()
    """The user's tags for administration, e.g. "administrator"."""


@dataclass(frozen=True)
class Users(Kind):
    """A list of users; as text, a TOML array of inline tables."""

    def from_value(self, value: object) -> tuple[User, ...]:
        example = 'write it as {name = "ann", password = "...", tags = []}'
        if not isinstance(value, list):
            raise BadValue(f"{shown(value)} is not a list of users", example)
        users: list[User] = []
        for entry in value:
            if not isinstance(entry, dict):
                raise BadValue(f"{shown(entry)} is not a user", example)
            user = _user(entry, example)
            if any(user.name == other.name for other in users):
                raise BadValue(f"the user {user.name!r} is given twice", "remove one of them")
            users.append(user)
        return tuple(users)

    def from_text(self, text: str) -> tuple[User, ...]:
        return self.from_value(toml_value(text))

    def schema(self) -> dict[str, object]:
        text = {"type": "string"}
        user = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "password": text,
                "password_hash": text,
                "tags": {"type": "array", "items": text},
            },
            "required": ["name"],
            "oneOf": [{"required": ["password"]}, {"required": ["password_hash"]}],
            "additionalProperties": False,
        }
        return {"type": "array", "items": user}

    def range(self) -> str:
        return "tables of name, password or password_hash, tags"

    def plain(self, value: object) -> object:
        assert isinstance(value, tuple)
        return [
            {
                "name": user.name,
                **({} if user.password is None else {"password": user.password}),
                **({} if user.password_hash is None else {"password_hash": user.password_hash}),
                "tags": list(user.tags),
            }
            for user in value
        ]

    def toml(self, value: object) -> str:
        plain = self.plain(value)
        assert isinstance(plain, list)
        return inline_tables(plain)


def _user(entry: dict[str, object], example: str) -> User:
    unknown = sorted(set(entry) - {"name", "password", "password_hash", "tags"})
    if unknown:
        raise BadValue(f"a user has no {unknown[0]!r}", example)
    name, tags = entry.get("name"), entry.get("tags", [])
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 255:
        raise BadValue("a user needs a name of 1 to 255 bytes", example)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadValue(f"the tags of the user {name!r} are not a list of strings", example)
    password, hashed = entry.get("password"), entry.get("password_hash")
    if (password is None) == (hashed is None):
        raise BadValue(f"the user {name!r} needs either password or password_hash", example)
    if password is not None and not isinstance(password, str):
        raise BadValue(f"the password of the user {name!r} is not a string", example)
    if hashed is not None and not _is_hash(hashed):
        raise BadValue(
            f"the password_hash of the user {name!r} is no base64 of salt and SHA-256, SHA-512 or MD5",
            "copy it as RabbitMQ's definitions export it",
        )
    return User(
        name=name,
        password=password,
        password_hash=hashed if isinstance(hashed, str) else None,
        tags=tuple(tags),
    )


def _is_hash(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(base64.b64decode(value, validate=True)) in _HASH_SIZES
    except (binascii.Error, ValueError):
        return False
