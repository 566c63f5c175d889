"""AMQP 1.0 without sockets: a session over a real broker, its frames carried by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame, read_frame
from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
    encode_composite,
)
from penstock.protocols.amqp10.codec.values import Symbol
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.options import Options
from penstock.protocols.amqp10.session.session import Session
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AuthenticationRefused
from tests.support.amqp_session import World

__all__ = ["Peer", "message"]


def message(body: bytes, **annotations: Any) -> bytes:
    """A durable message; `penstock_half` is the annotation `x-penstock-half`."""
    named = {Symbol(f"x-{name.replace('_', '-')}"): value for name, value in annotations.items()}
    marked = s.encode_section(s.ANNOTATIONS, named) if named else b""
    return s.encode_section(s.HEADER, [True]) + marked + s.encode_section(s.DATA, body)


class Peer:
    """A client with a session on channel 0."""

    def __init__(
        self, world: World, *, open_: Open | None = None, login: bool = True, **options: Any
    ) -> None:
        """Without `login`, not a byte is sent."""
        self.world = world
        self.out = OutBuffer()
        self.capacity = 1 << 20
        self.session = Session(
            world.broker,
            Options(**options),
            self.out,
            version="0",
            owner=self,
            output_capacity=lambda: self.capacity,
            dirty=lambda: None,
            flush=lambda: None,
            look=lambda: None,
            name=lambda: "peer",
            scram=lambda: world.broker.users.scram("amqp", True),
        )
        world.clients.append(self)
        self._deliveries = 0
        self._handles = 0
        if not login:
            return
        self.raw(SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL))
        assert self.session.take_login() is not None
        self.session.authenticated(Identity("guest"))
        self.raw(
            HEADER + encode_frame(0, open_ or Open("peer")) + encode_frame(0, Begin(None, 0, 1000, 1000))
        )
        self.got()

    def raw(self, data: bytes) -> None:
        """Hand over bytes, all of which are taken."""
        buffer = bytearray(data)
        taken = self.session.receive(buffer, len(buffer))
        assert taken == len(data)
        self.world.tick.schedule()

    def check_login(self) -> None:
        """Do what the endpoint does with a login by SCRAM."""
        login = self.session.take_login()
        assert login is not None and login.scram is not None
        try:
            identity = asyncio.run(login.scram.finish(login.password))
        except AuthenticationRefused as error:
            self.session.refused(error)
        else:
            self.session.authenticated(identity)

    def send(self, *performatives: Any, payload: bytes = b"", channel: int = 0) -> None:
        """Hand over frames, the payload in the last of them."""
        for performative in performatives:
            last = performative is performatives[-1]
            self.raw(encode_frame(channel, performative, payload if last else b""))

    def got(self, kind: type = object) -> list[Any]:
        """The performatives of a class that came since the last call; payloads stand in `payloads`."""
        self.world.turn()
        data = self.out.take()
        found: list[Any] = []
        self.payloads: list[bytes] = []
        at = 0
        while at < len(data):
            if data[at : at + 4] == b"AMQP":
                at += 8
                continue
            frame = read_frame(data, at, len(data), 1 << 20)
            assert frame is not None
            at, _, _, performative, payload = frame
            if performative is not None:
                found.append(performative)
                self.payloads.append(payload)
        return [one for one in found if isinstance(one, kind)]

    def attach(self, end: Any, **fields: Any) -> int:
        """A sender to a target, or a receiver from a source; its handle."""
        handle = self._handles
        self._handles += 1
        receives = isinstance(end, Source)
        ends = (end, Target()) if receives else (Source(), end)
        fields = {"initial_delivery_count": None if receives else 0, **fields}
        self.send(Attach(f"link {handle}", handle, receives, source=ends[0], target=ends[1], **fields))
        return handle

    def transfer(self, handle: int, payload: bytes, **fields: Any) -> int:
        """Send a message in one frame; its delivery id."""
        number = self._deliveries
        self._deliveries += 1
        self.send(Transfer(handle, number, b"%d" % number, 0, **fields), payload=payload)
        return number

    def credit(self, handle: int, credit: int, **fields: Any) -> None:
        """Let a receiver have so many messages, counted from its beginning."""
        self.send(Flow(0, 1000, 0, 1000, handle, 0, credit, **fields))

    def outcomes(self) -> list[Any]:
        """The states of the dispositions that came, one for each delivery."""
        return [
            one.state
            for one in self.got(Disposition)
            for _ in range((one.first if one.last is None else one.last) - one.first + 1)
        ]

    def request(self, handle: int, value: Any) -> Any:
        """Send a composite to a coordinator; its outcome."""
        self.transfer(handle, b"\x00\x53\x77" + encode_composite(value))
        (outcome,) = self.outcomes()
        return outcome

    def bodies(self) -> list[bytes]:
        """The bodies of the messages that came, each in one data section."""
        self.got()
        found = []
        for payload in self.payloads:
            if payload:
                data = s.parse_message(payload).data
                assert data is not None
                found.append(data)
        return found

    def ready(self, queue: str) -> int:
        """Messages that wait in a queue."""
        self.world.turn()
        return self.world.broker.vhost("/").queues[queue].queue.ready_count

    def declare(self, queue: str, **arguments: Any) -> None:
        """A durable queue; `max_length=2` is its argument `x-max-length`."""
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.session.vhost.declare_queue(queue, self.session.actor, durable=True, arguments=named)
