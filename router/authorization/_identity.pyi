"""The caller of an operation: a user who logged in."""

from penstock.router.authorization.grants import Grants

class Identity:
    """A user who proved to be one. Equal identities may do the same; nothing changes in one."""

    def __init__(
        self,
        username: str,
        tags: frozenset[str] = ...,
        client_id: str = "",
        grants: Grants | None = None,
        guarded: bool = True,
    ) -> None: ...
    @property
    def username(self) -> str:
        """The user's name."""
    @property
    def tags(self) -> frozenset[str]:
        """The user's tags for administration, e.g. "administrator"."""
    @property
    def client_id(self) -> str:
        """The MQTT client id it came with; "" for others. Topic permissions may name it."""
    @property
    def grants(self) -> Grants | None:
        """The rights of a token, in place of the permissions of a user; None: those count."""
    @property
    def guarded(self) -> bool:
        """Whether a `TopicGuard` is asked, too. False: it was, when what is done now was asked for.

        Identities that differ in this alone are equal.
        """
    @property
    def sees_all(self) -> bool:
        """Whether the user may look at all vhosts, and at what other users do."""
    def of_client(self, client_id: str) -> Identity:
        """The same user, with this client id; the many sessions of a user share its name."""
    def with_guard(self, guarded: bool) -> Identity:
        """The same, with another `guarded`."""
