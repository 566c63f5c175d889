"""Passwords of URLs, kept out of options, plans, command lines and checkpoints.

A URL without a password takes it where a connection is made, from the file that $PENSTOCK_PASSWORD_FILE names
or from $PENSTOCK_PASSWORD. Spark's processes on one machine have the environment of the program that made the
session; executors elsewhere get it by `spark.executorEnv`.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, urlsplit

from penstock.spark.errors import SparkError

__all__ = ["with_password", "without_password"]


def with_password(url: str) -> str:
    """The URL to connect with. Raises SparkError when the file cannot be read."""
    parts = urlsplit(url)
    if parts.password is not None:
        return url
    name = os.environ.get("PENSTOCK_PASSWORD_FILE")
    if name:
        try:
            secret = Path(name).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SparkError(
                f"there is no password in $PENSTOCK_PASSWORD_FILE: {error}",
                remedy="name a file that holds the password alone, readable for Spark's processes",
            ) from None
    else:
        secret = os.environ.get("PENSTOCK_PASSWORD", "")
    if not secret:
        return url
    place = parts.netloc.rpartition("@")[2]
    user = parts.username or "guest"
    return parts._replace(netloc=f"{user}:{quote(secret, safe='')}@{place}").geturl()


def without_password(url: str) -> str:
    """The URL to show."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if "@" in rest else url
