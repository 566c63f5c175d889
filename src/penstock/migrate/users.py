"""Puts users of another broker of MQTT into a penstock that runs: they have the rights of its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

__all__ = ["TOPICS_ONLY", "Api", "put_users"]

TOPICS_ONLY: Final = {"configure": "", "write": r"^amq\.topic$", "read": r"^amq\.topic$"}
"""Permissions of a user of MQTT."""


class Api(Protocol):
    """The management API."""

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; the JSON of the answer. Raises PenstockError: it was refused."""


def put_users(api: Api, vhost: str, users: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Make the users, or change their passwords.

    Args:
        api: Of the target.
        vhost: Whose topics they may use.
        users: As definitions have them.

    Returns:
        How many these are, and the names of users who were there with tags, and stay as they are.

    """
    tagged = {user["name"] for user in api.request("GET", "users") if user["tags"]}
    chosen = [user for user in users if user["name"] not in tagged]
    permissions = [{"user": user["name"], "vhost": vhost, **TOPICS_ONLY} for user in chosen]
    api.request("POST", "definitions", {"users": chosen, "permissions": permissions})
    return len(chosen), [user["name"] for user in users if user["name"] in tagged]
