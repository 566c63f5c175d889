"""Secrets in the log: sealed for their row, opened with an older key, and nothing is guessed."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.protocols.http.webhooks.security.secrets import Seal

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_a_sealed_secret_opens_for_its_row_only(tmp_path: Path) -> None:
    seal = Seal(file(tmp_path, OLD))
    sealed = seal.seal({"secrets": ["whsec_abc"]}, b"row")
    assert "whsec" not in sealed and b"whsec" not in base64.b64decode(sealed)
    assert seal.open(sealed, b"row", "w") == {"secrets": ["whsec_abc"]}
    assert sealed != seal.seal({"secrets": ["whsec_abc"]}, b"row"), "a fresh nonce each time"
    with pytest.raises(ConfigError, match="another key"):
        seal.open(sealed, b"other row", "w")


def test_an_older_key_opens_and_the_first_one_seals(tmp_path: Path) -> None:
    sealed = Seal(file(tmp_path, base64.b64encode(OLD))).seal({"a": 1}, b"row")
    both = Seal(file(tmp_path, base64.b64encode(NEW) + b"\n" + base64.b64encode(OLD) + b"\n"))
    assert both.open(sealed, b"row", "w") == {"a": 1}
    again = both.seal({"a": 1}, b"row")
    assert Seal(file(tmp_path, NEW)).open(again, b"row", "w") == {"a": 1}
    with pytest.raises(ConfigError, match=r"webhook 'w'.*another key"):
        Seal(file(tmp_path, NEW)).open(sealed, b"row", "w")


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33, base64.b64encode(b"y" * 31), b"%%%%"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"webhooks\.key_file"):
        Seal(file(tmp_path, content))


def test_a_file_for_everybody_or_for_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="everybody"):
        Seal(file(tmp_path, OLD, 0o604))
    with pytest.raises(ConfigError, match="cannot read it"):
        Seal(str(tmp_path / "none"))
