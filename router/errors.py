"""Errors of the router, as data: kind of thing, its name, its vhost, received and current.

    RoutingError
    ├── NotFound                 no exchange, queue or vhost of that name
    ├── AccessRefused            the user's permissions do not allow it
    │   └── TopicRefused         ... with this routing key
    ├── AuthenticationRefused    wrong login; the reason is for the log, not for the peer
    ├── ReservedName             a new name with the prefix `amq.`
    ├── DefaultExchange          an operation that the default exchange does not have
    ├── SystemExchange           deletion of a predeclared exchange
    ├── InternalExchange         a client's publish to an internal exchange
    ├── ResourceLocked           an exclusive queue of another connection
    ├── Inequivalent             redeclared with another property or argument
    ├── InUse                    if-unused was asked, and it is used
    ├── NotEmpty                 if-empty was asked, and it is not
    ├── InvalidArgument          an argument with an impossible value or type
    ├── InvalidProperty          a property that this type of queue cannot have
    ├── ServerNameRefused        a queue type that needs a name from the client
    ├── UnknownType              no such exchange type or queue type
    ├── InvalidMatch             an `x-match` that no headers exchange knows
    ├── InvalidHash              arguments that no consistent-hash exchange can have
    ├── InvalidLength            a number of messages that no recent-history exchange can keep
    ├── InvalidBinding           a binding that the type of the exchange cannot have
    ├── InvalidPattern           a pattern with too many words
    ├── InvalidRegex             a permission or policy whose pattern is no regular expression
    ├── InvalidParameter         a name, limit or policy that an administrator cannot set
    ├── LimitReached             one connection, channel or queue more than allowed
    ├── BackfillRefused          a queue cannot get what was published before
    ├── HalfRefused              a half message that could be refused when it is committed
    ├── HalfUnknown              no half message of that id is undecided
    └── TooManyHalves            one undecided half message more than there may be

No wire code and no wire text stands here: each front end makes its own from these fields.
"""

from __future__ import annotations

from typing import Literal

from penstock.errors import RoutingError

__all__ = [
    "AccessRefused",
    "AuthenticationRefused",
    "BackfillRefused",
    "DefaultExchange",
    "HalfRefused",
    "HalfUnknown",
    "InUse",
    "Inequivalent",
    "InternalExchange",
    "InvalidArgument",
    "InvalidBinding",
    "InvalidHash",
    "InvalidLength",
    "InvalidMatch",
    "InvalidParameter",
    "InvalidPattern",
    "InvalidProperty",
    "InvalidRegex",
    "Kind",
    "LimitReached",
    "NotEmpty",
    "NotFound",
    "Operation",
    "ReservedName",
    "ResourceLocked",
    "RoutingError",
    "ServerNameRefused",
    "SystemExchange",
    "TooManyHalves",
    "TopicRefused",
    "UnknownType",
]

Kind = Literal["exchange", "queue", "vhost", "user", "policy", "subscription", "token"]
"""The kind of thing that an error or a permission is about."""

Operation = Literal["configure", "write", "read"]
"""The operation on it."""


class NotFound(RoutingError):
    """There is no `kind` called `name` in `vhost` (for kind "vhost": `vhost` is the same name)."""

    def __init__(self, kind: Kind, name: str, vhost: str) -> None:
        place = "" if kind in ("vhost", "user", "token") else f" in vhost '{vhost}'"
        super().__init__(f"no {kind} '{name}'{place}", remedy="declare it first or correct the name")
        self.kind = kind
        self.name = name
        self.vhost = vhost


class AccessRefused(RoutingError):
    """`user` may not do `operation` on the `kind` called `name` (kind "vhost": may not enter it)."""

    def __init__(self, kind: Kind, name: str, vhost: str, user: str, operation: Operation) -> None:
        if kind == "exchange":
            # As permissions name the default exchange.
            name = name or "amq.default"
        what = (
            f"vhost '{name}'"
            if kind == "vhost"
            else f"{operation} access to {kind} '{name}' in vhost '{vhost}'"
        )
        super().__init__(f"{what} refused for user '{user}'", remedy="grant the permission to the user")
        self.kind = kind
        self.name = name
        self.vhost = vhost
        self.user = user
        self.operation = operation


class TopicRefused(AccessRefused):
    """`user` may not use the routing key `key` on the topic exchange called `name`."""

    def __init__(self, name: str, vhost: str, user: str, operation: Operation, key: bytes) -> None:
        super().__init__("exchange", name, vhost, user, operation)
        self.key = key
        self.args = (self.message,)


class AuthenticationRefused(RoutingError):
    """The login of `username` was refused. `reason` is for the log; a peer must not learn it."""

    Reason = Literal[
        "credentials", "certificate", "loopback", "busy", "anonymous", "limit", "token", "expired", "plugins"
    ]

    def __init__(self, username: str, reason: Reason, detail: str = "") -> None:
        why, remedy = {
            "credentials": ("unknown user or wrong password", "correct the user name or the password"),
            "certificate": (
                "a client certificate names it and there is no such user",
                "create the user, or correct tls.cert_login_from",
            ),
            "loopback": (
                "this user may log in from this machine only",
                "create another user, or remove it from auth.loopback_users",
            ),
            "busy": ("too many logins are being verified", "try again later"),
            "limit": ("too many logins from this address failed", "try again in some seconds"),
            "anonymous": ("a user name is needed here", "log in with a user name and a password"),
            "token": (f"the token is not good: {detail}", "see the section oauth of the configuration"),
            "expired": ("the token's time is over", "get a new one from its issuer"),
            "plugins": ("the plugins did not let it in", "see mqtt.amqtt_plugins"),
        }[reason]
        super().__init__(f"login of user '{username}' refused: {why}", remedy=remedy)
        self.username = username
        self.reason = reason


class ReservedName(RoutingError):
    """`name` begins with `amq.`, which is kept for the broker's own."""

    def __init__(self, kind: Kind, name: str, vhost: str) -> None:
        super().__init__(
            f"{kind} name '{name}' contains reserved prefix 'amq.*'", remedy="choose a name without it"
        )
        self.kind = kind
        self.name = name
        self.vhost = vhost


class DefaultExchange(RoutingError):
    """The default exchange (name "") can be published to, and nothing else."""

    def __init__(self, vhost: str) -> None:
        super().__init__(
            f"operation not permitted on the default exchange of vhost '{vhost}'",
            remedy="name an exchange",
        )
        self.vhost = vhost


class SystemExchange(RoutingError):
    """A predeclared exchange (`amq.*`) cannot be deleted."""

    def __init__(self, name: str, vhost: str) -> None:
        super().__init__(f"deletion of system exchange '{name}' in vhost '{vhost}' not allowed")
        self.name = name
        self.vhost = vhost


class InternalExchange(RoutingError):
    """An internal exchange takes messages from other exchanges only."""

    def __init__(self, name: str, vhost: str) -> None:
        super().__init__(
            f"cannot publish to internal exchange '{name}' in vhost '{vhost}'",
            remedy="publish to an exchange that is bound to it",
        )
        self.name = name
        self.vhost = vhost


class ResourceLocked(RoutingError):
    """The queue is exclusive to another connection, or the exclusive flag is not the declared one."""

    def __init__(self, name: str, vhost: str) -> None:
        super().__init__(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'",
            remedy="use it from the connection that declared it, or close that one",
        )
        self.name = name
        self.vhost = vhost


class Inequivalent(RoutingError):
    """Declared again, but otherwise than it is.

    `argument` is a property ("type", "durable", "auto_delete", "internal") or the name of an entry of the
    arguments table (the values are the table's, None where it has no such entry).
    """

    def __init__(
        self,
        kind: Kind,
        name: str,
        vhost: str,
        argument: str,
        received: object,
        current: object,
    ) -> None:
        super().__init__(
            f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '{vhost}': "
            f"received {received!r} but current is {current!r}",
            remedy=f"declare it as it is, or delete the {kind} first",
        )
        self.kind = kind
        self.name = name
        self.vhost = vhost
        self.argument = argument
        self.received = received
        self.current = current


class InUse(RoutingError):
    """A deletion with if-unused: the exchange has bindings, the queue has consumers."""

    def __init__(self, kind: Kind, name: str, vhost: str) -> None:
        super().__init__(f"{kind} '{name}' in vhost '{vhost}' in use", remedy="delete it without if-unused")
        self.kind = kind
        self.name = name
        self.vhost = vhost


class NotEmpty(RoutingError):
    """A deletion with if-empty: the queue has ready messages."""

    def __init__(self, name: str, vhost: str) -> None:
        super().__init__(f"queue '{name}' in vhost '{vhost}' not empty", remedy="delete it without if-empty")
        self.name = name
        self.vhost = vhost


class InvalidArgument(RoutingError):
    """The entry `argument` of an arguments table cannot be `value`.

    `problem` is one word for why: see `Problem`. `queue_type` is set with "not_for_type" only.
    """

    Problem = Literal[
        "value_negative",
        "value_zero",
        "value_too_large",
        "max_value_exceeded",
        "expected_integer",
        "no_exchange_type",
        "invalid_type",
        "unacceptable_type",
        "invalid_dlx_strategy",
        "invalid_max_age",
        "invalid_overflow",
        "invalid_queue_locator_arg",
        "invalid_value",
        "unsupported_mode",
        "unsupported_version",
        "routing_key_but_no_dlx_defined",
        "not_for_type",
    ]

    def __init__(
        self,
        kind: Kind,
        name: str,
        vhost: str,
        argument: str,
        value: object,
        problem: Problem,
        queue_type: str = "",
    ) -> None:
        super().__init__(
            f"invalid arg '{argument}' for {kind} '{name}' in vhost '{vhost}': {problem} ({value!r})",
            remedy="correct or leave out the argument",
        )
        self.kind = kind
        self.name = name
        self.vhost = vhost
        self.argument = argument
        self.value = value
        self.problem = problem
        self.queue_type = queue_type


class InvalidProperty(RoutingError):
    """A queue of `queue_type` cannot have this property ("non-durable", "exclusive-owner", "auto-delete")."""

    def __init__(self, name: str, vhost: str, prop: str, queue_type: str) -> None:
        super().__init__(
            f"invalid property '{prop}' for queue '{name}' in vhost '{vhost}' of type '{queue_type}'",
            remedy="declare it durable, not exclusive and not auto-delete, or as a classic queue",
        )
        self.name = name
        self.vhost = vhost
        self.property = prop
        self.queue_type = queue_type


class ServerNameRefused(RoutingError):
    """A queue of `queue_type` needs a name from the client."""

    def __init__(self, vhost: str, queue_type: str) -> None:
        super().__init__(
            f"a queue of type '{queue_type}' in vhost '{vhost}' cannot be named by the server",
            remedy="give it a name",
        )
        self.vhost = vhost
        self.queue_type = queue_type


class UnknownType(RoutingError):
    """There is no exchange type, or no queue type, called `type`."""

    def __init__(self, kind: Literal["exchange", "queue"], type_: str, name: str, vhost: str) -> None:
        super().__init__(f"unknown {kind} type '{type_}' for {kind} '{name}' in vhost '{vhost}'")
        self.kind = kind
        self.type = type_
        self.name = name
        self.vhost = vhost


class InvalidMatch(RoutingError):
    """`x-match` of a binding to a headers exchange is no known way to match."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"invalid x-match field value {value!r}", remedy="use all, any, all-with-x, or any-with-x"
        )
        self.value = value


class InvalidHash(RoutingError):
    """A consistent-hash exchange cannot hash `property`; None: it is to hash a header and a property."""

    def __init__(self, prop: str | None) -> None:
        what = "a header and a property" if prop is None else f"the property '{prop}'"
        super().__init__(f"{what} cannot be hashed", remedy="give hash-header, or one hash-property")
        self.property = prop


class InvalidLength(RoutingError):
    """An exchange that remembers is to remember `value` messages, by its argument `argument`."""

    def __init__(self, argument: str, value: object) -> None:
        super().__init__(f"{argument} is {value!r}", remedy="give an integer above 0")
        self.argument = argument
        self.value = value


class InvalidBinding(RoutingError):
    """An exchange of this type cannot have such a binding; `value` is the key, or the type of the queue."""

    Problem = Literal[
        "key_no_integer", "key_not_positive", "key_too_large", "key_not_empty", "queue_type", "no_queue"
    ]

    def __init__(self, problem: Problem, value: str) -> None:
        super().__init__(f"the exchange cannot be bound like this: {problem} ({value!r})")
        self.problem = problem
        self.value = value


class InvalidPattern(RoutingError):
    """A binding pattern or topic filter has more words than the router matches."""

    def __init__(self, words: int, limit: int) -> None:
        super().__init__(f"a pattern of {words} words", remedy=f"use at most {limit}")
        self.words = words
        self.limit = limit


class InvalidRegex(RoutingError):
    """`pattern` is no regular expression here; `reason` is RE2's."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(
            f"invalid regular expression '{pattern}': {reason}",
            remedy="correct it; RE2 syntax has no look-around and no back references",
        )
        self.pattern = pattern
        self.reason = reason


class InvalidParameter(RoutingError):
    """A value that an administrator asked for is not allowed; the message is RabbitMQ's where it has one."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)


class LimitReached(RoutingError):
    """A vhost or a user has as many of something as it may have: `most`.

    `name` is that of the queue that cannot be made ("vhost-queues" only).
    """

    Limit = Literal["vhost-connections", "user-connections", "user-channels", "vhost-queues"]

    def __init__(self, limit: Limit, most: int, *, vhost: str = "", user: str = "", name: str = "") -> None:
        owner, _, things = limit.partition("-")
        whose = f"vhost '{vhost}'" if owner == "vhost" else f"user '{user}'"
        super().__init__(
            f"{whose} may have {most} {things} at once",
            remedy=f"close or delete one, or raise max-{things}",
        )
        self.limit = limit
        self.most = most
        self.vhost = vhost
        self.user = user
        self.name = name


class BackfillRefused(RoutingError):
    """The queue cannot get what was published before; `reason` says why."""

    def __init__(self, queue: str, vhost: str, reason: str, remedy: str) -> None:
        super().__init__(f"cannot backfill queue '{queue}' in vhost '{vhost}': {reason}", remedy=remedy)
        self.queue = queue
        self.vhost = vhost
        self.reason = reason


class HalfRefused(RoutingError):
    """The destination of a half message may refuse it at the commit."""

    def __init__(self) -> None:
        super().__init__(
            "a half message cannot be published by headers, or to a queue that may refuse",
            remedy="publish to a topic",
        )


class HalfUnknown(RoutingError):
    """No half message of this id, or name, is undecided."""

    def __init__(self, id: int | str) -> None:
        super().__init__(
            f"there is no undecided message {id!r} of this user",
            remedy="it was committed, rolled back or given up before",
        )
        self.id = id


class TooManyHalves(RoutingError):
    """As many half messages are undecided as there may be."""

    def __init__(self, count: int, size: int, user: str = "") -> None:
        """`user`: it is this one's share that is used up."""
        of = f" of user '{user}'" if user else ""
        super().__init__(
            f"{count} half messages{of} of {size} bytes are undecided, no more are taken",
            remedy="commit them or roll them back",
        )
