"""Class connection: from the protocol header to a vhost, the login between them, and the client's close."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp.codec.methods import Close, ConnectionOpen, Index, StartOk, TuneOk
from penstock.protocols.amqp.session import renewal
from penstock.protocols.amqp.session.handshake import ANONYMOUS, EXTERNAL, check_tune, credentials
from penstock.protocols.amqp.session.state import Login, State

if TYPE_CHECKING:
    from penstock.protocols.amqp.session.session import Session

__all__ = ["LEGAL"]


def start_ok(session: Session, method: StartOk) -> None:
    session.client_properties = method.client_properties
    if method.mechanism == EXTERNAL and session.certificate_user is not None:
        login = Login(session.certificate_user, b"", certified=True)
    elif method.mechanism == ANONYMOUS and session.options.allow_anonymous is not False:
        login = Login("", b"", anonymous=True)
    else:
        login = Login(*credentials(method.mechanism, method.response))
    session.mechanism = method.mechanism
    session.state = State.LOGIN
    session.login = login


def tune_ok(session: Session, method: TuneOk) -> None:
    check_tune(method, session.options)
    session.channel_max = method.channel_max
    session.frame_max = session.codec.frame_max = method.frame_max
    session.heartbeat_s = method.heartbeat
    session.state = State.OPEN


def open_(session: Session, method: ConnectionOpen) -> None:
    session.elsewhere = session.broker.elsewhere(method.virtual_host)
    if session.elsewhere is None:
        session.enter(session.broker.enter(session.identity, method.virtual_host))
        session.send("connection.open-ok", "")


def close(session: Session, method: Close) -> None:
    session.tear_down()
    session.send("connection.close-ok")
    session.end(f"the client closed: {method.reply_code} {method.reply_text}")
    session.peer_closes = True


LEGAL: Final[dict[tuple[State, Index], Callable[[Session, Any], None]]] = {
    (State.START, (10, 11)): start_ok,
    (State.TUNE, (10, 31)): tune_ok,
    (State.TUNE, (10, 50)): close,
    (State.OPEN, (10, 40)): open_,
    (State.OPEN, (10, 50)): close,
    (State.RUNNING, (10, 50)): close,
    (State.RUNNING, (10, 70)): renewal.update_secret,
}
"""Methods of channel 0 by the state in which they are legal; LOGIN has none, CLOSING waits for close-ok."""
