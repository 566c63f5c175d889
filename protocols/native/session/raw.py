"""The log itself for readers elsewhere (Spark): its files as bytes, and leases on what is still needed.

    REQUEST log        -> {"manifest": hex, "segments": [[number, inode, size], ...], "vhosts": {...}}
    REQUEST log_read   -> LOG, the bytes; answered one after the other, while the peer takes them
    REQUEST hold       acquire or renew a lease: the log from a position on is kept, for some seconds
    REQUEST release    end a lease
    REQUEST holds      the leases, which operators see, too

The log has the messages of all vhosts: these requests are an administrator's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.log_core.reading.raw import READ_MAX, Kind, Listing
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec.errors import RequestError

if TYPE_CHECKING:
    from penstock.protocols.native.codec.frames import Fields
    from penstock.protocols.native.session.session import Session

__all__ = ["RawReads", "acquire_lease", "leases", "log", "log_read", "release_lease"]

_WAITING_MAX: Final = 16
_TTL_MAX_S: Final = 86_400


def _allowed(session: Session) -> None:
    if "administrator" not in session.identity.tags:
        raise RequestError(
            "access_refused",
            f"user '{session.identity.username}' may not read the log: it has the messages of all vhosts",
            remedy="log in as a user with the tag administrator",
        )


class RawReads:
    """The reads of one connection, one at a time, and none while its output is full."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[tuple[int, Kind, int, int, int, int]] = deque()
        self._reading = False

    def add(self, id: int, kind: Kind, number: int, inode: int, offset: int, size: int) -> None:
        """A read that was asked for. Raises RequestError."""
        if len(self._waiting) >= _WAITING_MAX:
            raise RequestError("busy", f"{_WAITING_MAX} reads wait already", remedy="wait for answers")
        self._waiting.append((id, kind, number, inode, offset, size))
        self.go_on()

    def go_on(self) -> None:
        """Begin the next one, if there is room for it."""
        session = self._session
        if self._reading or not self._waiting or not session.running or session.output_capacity() <= 0:
            return
        id, kind, number, inode, offset, size = self._waiting.popleft()
        self._reading = True

        def done(found: bytes | OSError) -> None:
            self._reading = False
            if not session.running:
                return
            if isinstance(found, bytes):
                session.codec.send(kinds.LOG, id, found)
                session.dirty()
            else:
                session.answer_error(id, _failed(found, number))
            self.go_on()

        session.log.raw.read(kind, number, inode, offset, size, done)


def _failed(error: OSError, number: int) -> RequestError:
    if isinstance(error, FileNotFoundError):
        return RequestError(
            "not_found", f"there is no segment {number} any more", remedy="list the log again"
        )
    return RequestError(
        "log_failed", f"segment {number} cannot be read: {error.strerror}", remedy="look after the disk"
    )


def log(session: Session, id: int, fields: Fields) -> None:
    """{}: which files there are."""
    fields.done()
    _allowed(session)

    def done(found: Listing | OSError) -> None:
        if not session.running:
            return
        if isinstance(found, OSError):
            session.answer_error(id, _failed(found, 0))
            return
        value = {
            "manifest": found.manifest.hex(),
            "segments": found.segments,
            "vhosts": {str(number): name for name, number in session.broker.partitions.items()},
        }
        session.answer(id, value)

    session.log.raw.list(done)


def log_read(session: Session, id: int, fields: Fields) -> None:
    """{segment, inode?, file?, offset?, bytes?}: answered with a LOG frame."""
    number = fields.number("segment")
    inode = fields.number("inode", 0)
    kind = cast("Kind", fields.choice("file", ("segment", "index"), "segment"))
    offset = fields.number("offset", 0)
    size = fields.number("bytes", READ_MAX, least=1)
    fields.done()
    _allowed(session)
    session.raw.add(id, kind, number, inode, offset, size)


def acquire_lease(session: Session, id: int, fields: Fields) -> None:
    """`hold`, {name, position, ttl_s}: keep the log from `position` on."""
    name = fields.text("name", most=200)
    position = fields.number("position")
    ttl_s = fields.number("ttl_s", least=1, most=_TTL_MAX_S)
    fields.done()
    _allowed(session)
    if not session.log.leases.acquire(name, session.identity.username, position, ttl_s):
        raise RequestError("limit_reached", "there are 1,000 readers already", remedy="end some")
    session.answer(id, {})


def release_lease(session: Session, id: int, fields: Fields) -> None:
    """`release`, {name}: end the lease; fine when there is none."""
    name = fields.text("name", most=200)
    fields.done()
    _allowed(session)
    session.answer(id, {"released": session.log.leases.release(name)})


def leases(session: Session, id: int, fields: Fields) -> None:
    """`holds`: the leases."""
    fields.done()
    _allowed(session)
    session.answer(id, {"holds": [described(lease, session.log) for lease in session.log.leases]})


def described(held: Any, log: Any) -> dict[str, Any]:
    """One lease, for people."""
    return {
        "name": held.name,
        "user": held.user,
        "position": held.position,
        "behind": max(log.written_lsn + 1 - held.position, 0),
    }
