"""Changes of a login while its connection runs: connection.update-secret, and changed tags.

A client that logged in by a token sends a new one before the old one's time is over. It must be the same
user's; what it allows counts from then on, and consumers of what it does not are cancelled. One that is not
good ends the connection (530), as in RabbitMQ. For users with a password no secret is looked at: who is in
stays in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp.codec.errors import AmqpError, hard
from penstock.protocols.amqp.session.state import Login
from penstock.router.authorization.identity import Actor

if TYPE_CHECKING:
    from penstock.protocols.amqp.codec.methods import UpdateSecret
    from penstock.protocols.amqp.session.session import Session
    from penstock.router.authorization.identity import Identity

__all__ = ["refuse", "renew_tags", "renewed", "update_secret"]

_UPDATE_SECRET: Final = (10, 70)


def update_secret(session: Session, method: UpdateSecret) -> None:
    """The client has another secret: a token is checked by the host, as at the login."""
    if session.identity.grants is not None:
        session.login = Login(session.identity.username, method.new_secret)
    elif renew_tags(session):
        session.send("connection.update-secret-ok")
    else:
        raise _refused()


def renewed(session: Session, identity: Identity) -> None:
    """The new token is good."""
    if identity.grants is None or identity.username != session.identity.username:
        refuse(session)
        return
    session.replace(identity)
    session.permissions_changed()
    if not session.failure:
        session.send("connection.update-secret-ok")


def refuse(session: Session) -> None:
    """It is not, or it is another user's."""
    session.fail(_refused(), _UPDATE_SECRET)


def renew_tags(session: Session) -> bool:
    """Take over the user's tags as they are now; False: there is no such user any more."""
    if session.identity.grants is not None:
        return True
    identity = session.broker.users.identity(session.identity.username)
    if identity is None:
        return False
    session.actor = Actor(identity, session.actor.owner)
    return True


def _refused() -> AmqpError:
    return hard(530, "New secret was refused by one of the backends")
