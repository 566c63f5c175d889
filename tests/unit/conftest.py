"""One thing for all unit tests: a password is hashed once."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from penstock.router.authentication import users
from penstock.router.authentication.passwords import hash_password


@pytest.fixture(scope="session", autouse=True)
def _hashes_are_kept() -> Iterator[None]:
    """Hundreds of tests make a broker with the user guest, and a hash takes 60 ms of CPU.

    The tests of hashes call `passwords.hash_password` itself, which makes a new one each time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "hash_password", functools.cache(hash_password))
        yield
