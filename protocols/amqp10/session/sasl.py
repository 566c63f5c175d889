"""The server's side of one SASL exchange: what the client may choose, and how its responses become a login.

    PLAIN, EXTERNAL, ANONYMOUS      init ──> a login to be checked
    OAUTHBEARER, XOAUTH2            init ──> a login by token; OAUTHBEARER says why it is refused in a
                                    challenge, and waits for a response before the outcome
    SCRAM-SHA-256                   init ──> challenge, response ──> a login to be checked; the proof of the
                                    server is the additional data of the outcome

A client takes the best mechanism that it knows and is offered. It fails when its password has no keys for
SCRAM (a hash of another broker) or is a token: `offered` leaves SCRAM out then, unless the operator says
otherwise.

Source: AMQP 1.0 part 5 section 5.3; RFC 4616, RFC 7628, RFC 7677; Google's XOAUTH2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from penstock.protocols.amqp10.codec.errors import FramingError
from penstock.protocols.amqp10.session.state import Login
from penstock.router.authentication.scram import METHOD as SCRAM
from penstock.router.authentication.token_form import is_token
from penstock.router.names import text

if TYPE_CHECKING:
    from penstock.protocols.amqp10.options import Options
    from penstock.router.authentication.users import ScramLogin, Users

__all__ = ["SaslExchange", "offered"]

_OAUTHBEARER: Final = "OAUTHBEARER"
_OF_TOKENS: Final = (_OAUTHBEARER, "XOAUTH2")
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_BEARER: Final = b"bearer "


def offered(options: Options, users: Users, certificate_user: str | None) -> tuple[str, ...]:
    """The mechanisms for a client; `certificate_user` is whom its certificate names."""
    scram: Literal["auto"] | bool = options.scram
    if scram == "auto":
        scram = users.all_have_verifiers and not users.takes_tokens
    return (
        *((SCRAM,) if scram else ()),
        "PLAIN",
        *(_OF_TOKENS if users.takes_tokens else ()),
        *(() if certificate_user is None else ("EXTERNAL",)),
        *(() if options.allow_anonymous is False else ("ANONYMOUS",)),
    )


class SaslExchange:
    """One exchange."""

    def __init__(
        self, mechanisms: tuple[str, ...], certificate_user: str | None, scram: Callable[[], ScramLogin]
    ) -> None:
        """`mechanisms` are those that were offered; `scram` begins a login by SCRAM."""
        self.mechanism = ""
        """The client's choice; empty: it made none yet."""
        self._mechanisms = mechanisms
        self._certificate_user = certificate_user
        self._new_scram = scram
        self._scram: ScramLogin | None = None
        self._refused = False

    def init(self, mechanism: str, response: bytes) -> Login | bytes:
        """The login to be checked, or a challenge. Raises PenstockError: there is no such login."""
        if self.mechanism:
            raise FramingError("a second sasl-init")
        self.mechanism = mechanism
        if mechanism not in self._mechanisms:
            raise FramingError(f"the mechanism {mechanism[:64]} was not offered")
        if mechanism == SCRAM:
            self._scram = self._new_scram()
            return self._scram.step(response)
        if mechanism == "EXTERNAL" and self._certificate_user is not None:
            return Login(self._certificate_user, b"", certified=True)
        if mechanism == "ANONYMOUS":
            return Login("", b"", anonymous=True)
        login = _plain(response) if mechanism == "PLAIN" else _token(response)
        if login is None:
            raise FramingError(f"no response of {mechanism}")
        return login

    def response(self, data: bytes) -> Login | None:
        """The login to be checked; None: the client has heard why it is refused. Raises PenstockError."""
        if self._refused:
            return None
        if self._scram is None:
            raise FramingError("a sasl-response to no challenge")
        return Login(self._scram.name, data, scram=self._scram)

    def proof(self) -> bytes | None:
        """The proof of the server, for a client that is in."""
        return self._scram.answer if self._scram is not None else None

    def refusal(self) -> bytes | None:
        """The challenge that tells of a refused token; None: the outcome says it."""
        if self.mechanism != _OAUTHBEARER or self._refused:
            return None
        self._refused = True
        return _INVALID_TOKEN


def _plain(response: bytes) -> Login | None:
    parts = response.split(b"\0")
    return Login(text(parts[1]), parts[2]) if len(parts) == 3 else None


def _token(response: bytes) -> Login | None:
    """The token among fields that end with \\x01: `auth=Bearer TOKEN`. Whose it is, it says itself."""
    for field in response.split(b"\1"):
        key, _, value = field.partition(b"=")
        if key == b"auth" and value[: len(_BEARER)].lower() == _BEARER:
            token = value[len(_BEARER) :].strip()
            return Login("", token) if is_token(token) else None
    return None
