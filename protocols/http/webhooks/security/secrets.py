"""Secrets of webhooks in the log: sealed with a key that lies in a file of its own (`webhooks.key_file`).

    "sealed": base64( nonce, 12 B | AES-256-GCM of JSON {"secrets": [...], "headers": {...}, "auth": {...}}
                      and tag, 16 B )

It is bound to the webhook's row, so that a sealed secret cannot be moved to another one. The file has
32 bytes, as they are or in base64; with an older key in a second line what was sealed with that is read, too,
and sealed anew at the start.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.errors import ConfigError

__all__ = ["Seal"]

_KEY: Final = "webhooks.key_file"
_NONCE: Final = 12
_SIZE: Final = 32


class Seal:
    """The keys of a file; the first one seals."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError: the file cannot be read, others may read it, or it has no keys."""
        try:
            with Path(path).open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(4096)
        except OSError as error:
            remedy = _make(path) if isinstance(error, FileNotFoundError) else ""
            raise ConfigError(
                f"cannot read it: {error.strerror}", source=path, key=_KEY, remedy=remedy
            ) from error
        if stat.S_IMODE(mode) & 0o007:
            raise ConfigError(
                "everybody may read or change it",
                source=path,
                key=_KEY,
                remedy=f"`chmod 0600 {_quoted(path)}` closes it",
            )
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # here: few gateways have a key file

        self._path = path
        self._keys = [AESGCM(key) for key in _keys(text, path)]

    def seal(self, value: dict[str, Any], row: bytes) -> str:
        """The value, to be read with the key and for this row only."""
        nonce = os.urandom(_NONCE)
        sealed = self._keys[0].encrypt(nonce, orjson.dumps(value), row)
        return base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, row: bytes, name: str) -> dict[str, Any]:
        """The secrets that were sealed for this row. Raises ConfigError: with none of these keys."""
        from cryptography.exceptions import InvalidTag

        raw = base64.b64decode(sealed)
        for key in self._keys:
            try:
                value: dict[str, Any] = orjson.loads(key.decrypt(raw[:_NONCE], raw[_NONCE:], row))
            except InvalidTag:
                continue
            return value
        raise ConfigError(
            f"the secrets of webhook '{name}' were sealed with another key",
            source=self._path,
            key=_KEY,
            remedy="restore the old key file, or add its key as a second line",
        )


def _keys(text: bytes, path: str) -> list[bytes]:
    if len(text) == _SIZE:
        return [text]
    try:
        found = [base64.b64decode(line, validate=True) for line in text.split()]
    except binascii.Error:
        found = []
    if not found or any(len(key) != _SIZE for key in found):
        raise ConfigError(
            f"no key: {_SIZE} bytes, as they are or in base64",
            source=path,
            key=_KEY,
            remedy=_make(path),
        )
    return found


def _make(path: str) -> str:
    return f"`(umask 077; head -c 32 /dev/urandom | base64 > {_quoted(path)})` makes one"


def _quoted(path: str) -> str:
    """The path as a shell reads it."""
    from shlex import quote  # here, since a start seldom has an error to tell

    return quote(path)
