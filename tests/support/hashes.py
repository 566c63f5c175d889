"""A password is hashed once, and tried once: that takes 60 ms, and hundreds of gateways have the user guest.

Imported by the tests and, as a script's neighbour, by the fork server; so it imports nothing of the tests.
Only what the table of users calls is replaced. Tests of hashes call `passwords.hash_password` itself, and a
gateway that is started as a new process hashes anew.
"""

from __future__ import annotations

import functools

__all__ = ["keep_hashes"]


def keep_hashes() -> None:
    """From now on this process, and those forked from it, hash each password once; guest's is made now."""
    from penstock.router.authentication import users

    users.hash_password = functools.cache(users.hash_password)
    users.verify_password = functools.cache(users.verify_password)
    guest = b"guest"
    users.verify_password(users.hash_password(guest), guest)
