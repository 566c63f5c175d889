"""HTTP/2 on one connection, around h2: bytes in, requests out; responses in, bytes out. No I/O, no clock.

h2 keeps the protocol's state; `budget` counts what the peer asks for before h2 sees it. Requests run side by
side, at most 100. A response leaves as far as the stream's and the connection's windows allow, the rest waits
here; a stream whose peer gives no window for 30 s is reset. The bodies of a peer are bounded by
windows, 256 KiB per stream and 1 MiB in all, which are opened again only for handlers that want the body.

Source: RFC 9113, RFC 7541; budgets: `budget`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import hpack

from penstock.protocols.http.server.messages import PREFACE, HttpError, Request, Response
from penstock.protocols.http.server.progress import STALLED, Progress
from penstock.protocols.http.server.wire.stream_budget import Abuse, Budget
from penstock.protocols.net.emptying import empty

if TYPE_CHECKING:
    from penstock.protocols.http.server.wire.h1 import Host

__all__ = ["PREFACE", "H2Session"]


_STREAMS_MAX: Final = 100
_STREAM_WINDOW: Final = 256 * 1024
_CONNECTION_WINDOW: Final = 1 << 20
_HEADER_LIST_MAX: Final = 16384
_HPACK_TABLE: Final = 4096
_DEFAULT_WINDOW: Final = 65535
_PIECE_MAX: Final = 65536
"""Unsent bytes of a stream above which a stream of pieces waits."""

_Codes = h2.errors.ErrorCodes


class _Encoder(hpack.Encoder):
    """Without Huffman codes: they save few bytes here, and cost as much as the rest of the encoding."""

    def encode(self, headers: Any, huffman: bool = False) -> bytes:
        return super().encode(headers, huffman=huffman)


class _Stream:
    """A request, and what of its answer was not sent yet."""

    __slots__ = ("ended", "granted", "pieces", "progress", "request", "sent", "unsent")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.pieces: deque[memoryview] = deque()
        self.unsent = 0
        self.sent = 0
        self.ended = False
        """Nothing comes behind `pieces`."""
        self.progress = Progress()
        self.granted = 0
        """Bytes of the body that came and whose window was not opened again."""


class H2Session:
    """See the module."""

    version: Literal["2"] = "2"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._budget = Budget()
        self._streams: dict[int, _Stream] = {}
        self._new: list[Request] = []
        """Of the read that is being handled."""
        self._preface_left = len(PREFACE)
        self._closed = False
        self._stopping = False
        self._now = 0.0
        self._sent = 0
        """Bytes of answers that windows have let through."""
        self._progress = Progress()
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            # Headers that leave are ours: lower-case names, the pseudo-header first.
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._h2 = h2.connection.H2Connection(config)
        self._h2.encoder = _Encoder()
        codes = h2.settings.SettingCodes
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: _STREAMS_MAX,
                codes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                codes.MAX_HEADER_LIST_SIZE: _HEADER_LIST_MAX,
                codes.HEADER_TABLE_SIZE: _HPACK_TABLE,
                codes.ENABLE_PUSH: 0,
            },
        )
        # In force at once, and not only when the peer has acknowledged it: a bomb would not wait.
        self._h2.decoder.max_header_list_size = _HEADER_LIST_MAX
        self._h2.decoder.max_allowed_table_size = _HPACK_TABLE
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - _DEFAULT_WINDOW)
        self._send()

    # Asked by the endpoint

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return not self._streams

    @property
    def reading_body(self) -> bool:
        return any(not stream.request.complete for stream in self._streams.values())

    @property
    def reads(self) -> bool:
        return not self._closed

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for a window."""
        return sum(stream.unsent for stream in self._streams.values())

    # Bytes

    def receive(self, buffer: bytearray, size: int, now: float) -> int:
        """Handle buffer[0:size]: all of it. Never raises for what a peer sends."""
        if self._closed:
            return size
        self._now = now
        data = memoryview(buffer)[:size]
        skipped = min(self._preface_left, size)
        try:
            self._preface_left -= skipped
            self._budget.feed(data[skipped:], now)
            for event in self._h2.receive_data(bytes(data)):
                self._event(event)
            self._begin_requests()
        except Abuse as error:
            self._terminate(_Codes(error.code), str(error))
        except h2.exceptions.ProtocolError as error:
            # h2 has queued its GOAWAY.
            self._end(f"HTTP/2 protocol error: {str(error) or type(error).__name__}")
        else:
            self._flush_streams()
            self._send()
        return size

    def _event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self._requested(event)
            case h2.events.DataReceived():
                self._data(event)
            case h2.events.StreamEnded():
                if (stream := self._streams.get(event.stream_id or 0)) is not None:
                    # It came whole before anybody asked for it: the connection's window is for others again.
                    self._release(stream)
                    stream.request.end()
            case h2.events.StreamReset():
                if not event.remote_reset:
                    self._budget.reset(self._now)
                self._forget(event.stream_id or 0)
            case h2.events.ConnectionTerminated():
                self._end("the client sent GOAWAY")

    def _requested(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        pseudo: dict[str, str] = {}
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers or ():
            name, value = _text(raw_name), _text(raw_value)
            if name.startswith(":"):
                pseudo[name] = value
            elif name in headers:
                headers[name] += ("; " if name == "cookie" else ", ") + value
            else:
                headers[name] = value
        headers.setdefault("host", pseudo.get(":authority", ""))
        request = Request(
            pseudo.get(":method", ""),
            pseudo.get(":path", ""),
            headers,
            "2",
            stream_id,
            peer_host=self._host.peer_host,
        )
        self._streams[stream_id] = _Stream(request)
        # By number: a request that held its stream would be a cycle.
        request.session_wants = lambda: self._wanted(stream_id)
        if self._stopping:
            self._reset(stream_id, _Codes.REFUSED_STREAM)
            return
        self._new.append(request)

    def _begin_requests(self) -> None:
        """Have the requests of a read served, when what came of their bodies is there, too."""
        new, self._new = self._new, []
        for request in new:
            if request.stream_id in self._streams:
                self._host.requested(request)

    def _data(self, event: h2.events.DataReceived) -> None:
        stream = self._streams.get(event.stream_id or 0)
        length = event.flow_controlled_length or 0
        if stream is None or stream.request.refused:
            # Nobody wants it: only the connection's window is opened, the stream's stays shut.
            if length:
                self._h2.increment_flow_control_window(length)
            return
        stream.request.feed(event.data or b"")
        stream.granted += length
        if stream.request.wanted:
            self._release(stream)

    def _wanted(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and not self._closed:
            self._release(stream)
            self._send()

    def _release(self, stream: _Stream) -> None:
        """Open the windows by what came and was not wanted until now."""
        granted, stream.granted = stream.granted, 0
        if granted:
            self._h2.acknowledge_received_data(granted, stream.request.stream_id)

    def body_too_slow(self) -> None:
        """Clients send a body too slowly."""
        for stream in list(self._streams.values()):
            if stream.request.wanted and not stream.request.complete:
                stream.request.fail(HttpError(408, "malformed", "the body came too slowly"))

    # Responses

    def respond(self, request: Request, response: Response) -> None:
        """Send a whole answer to `request`."""
        stream = self._streams.get(request.stream_id)
        if stream is None or self._closed:
            return
        body = response.body if request.method != "HEAD" and response.status not in (204, 304) else b""
        self._start(request, response, len(response.body), end=not body)
        if body:
            stream.pieces.append(memoryview(body))
            stream.unsent += len(body)
        self.finish(request)

    def begin(self, request: Request, response: Response) -> None:
        """Send the head of an answer whose body comes in pieces."""
        if request.stream_id in self._streams and not self._closed:
            self._start(request, response, None, end=False)
            self._send()

    def push(self, request: Request, data: bytes) -> bool:
        """Send a piece; whether there is still room for more."""
        stream = self._streams.get(request.stream_id)
        if stream is None or self._closed:
            return True
        if data:
            stream.pieces.append(memoryview(data))
            stream.unsent += len(data)
            self._flush(stream)
            self._send()
        return stream.unsent < _PIECE_MAX

    def finish(self, request: Request) -> None:
        """The answer is whole."""
        stream = self._streams.get(request.stream_id)
        if stream is not None and not self._closed:
            stream.ended = True
            self._flush(stream)
        self._send()

    def fits(self, request: Request) -> bool:
        """Whether the next piece may be sent now."""
        stream = self._streams.get(request.stream_id)
        return stream is None or stream.unsent < _PIECE_MAX

    def abandon(self, request: Request) -> None:
        """The answer cannot be finished: the client must learn that it is not whole."""
        if request.stream_id in self._streams and not self._closed:
            self._reset(request.stream_id, _Codes.INTERNAL_ERROR)
            self._send()

    def _start(self, request: Request, response: Response, size: int | None, *, end: bool) -> None:
        headers = [
            (":status", str(response.status)),
            ("date", self._host.date()),
            ("server", "penstock"),
        ]
        if response.status not in (204, 304):
            headers.append(("content-type", response.content_type))
            if size is not None:
                headers.append(("content-length", str(size)))
        headers += [(name.lower(), value) for name, value in response.headers]
        self._h2.send_headers(request.stream_id, headers, end_stream=end)
        if end:
            self._done(request.stream_id)

    def _flush_streams(self) -> None:
        for stream in list(self._streams.values()):
            if stream.unsent:
                self._flush(stream)

    def _flush(self, stream: _Stream) -> None:
        """Send what the windows allow."""
        stream_id = stream.request.stream_id
        if self._closed or stream_id not in self._streams:
            return
        frames = 0
        while stream.pieces:
            window = self._h2.local_flow_control_window(stream_id)
            sendable = min(window, self._h2.max_outbound_frame_size)
            if sendable <= 0:
                break
            piece = stream.pieces[0]
            part, rest = piece[:sendable], piece[sendable:]
            if rest:
                stream.pieces[0] = rest
            else:
                stream.pieces.popleft()
            stream.unsent -= len(part)
            stream.sent += len(part)
            self._sent += len(part)
            frames += 1
            self._h2.send_data(stream_id, bytes(part), end_stream=stream.ended and not stream.pieces)
        self._budget.sent_data(frames)
        if stream.ended and not stream.pieces:
            if not frames:
                self._h2.end_stream(stream_id)
            self._done(stream_id)

    def _done(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id)
        if not stream.request.complete:
            # The answer is there and the rest of the body is of no use (RFC 9113 8.1).
            self._h2.reset_stream(stream_id, _Codes.NO_ERROR)
            if stream.granted:
                self._h2.increment_flow_control_window(stream.granted)

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        self._h2.reset_stream(stream_id, code)
        self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            if stream.granted:
                self._h2.increment_flow_control_window(stream.granted)
            stream.request.lost()

    # Time, and the end

    def clock(self, now: float) -> None:
        """Reset streams whose peer takes too little, or end the connection if no other stream goes on."""
        self._now = now
        if self._progress.stalled(self.unsent, self._sent, now):
            self._terminate(_Codes.ENHANCE_YOUR_CALM, STALLED)
            return
        for stream_id, stream in list(self._streams.items()):
            if stream.progress.stalled(stream.unsent, stream.sent, now):
                self._reset(stream_id, _Codes.CANCEL)
        self._send()

    def writable(self) -> None:
        """The connection takes output again: those who stream are woken by the endpoint."""

    def too_slow(self, *, begun: bool) -> None:
        """No request came in time."""
        self._terminate(_Codes.NO_ERROR, "idle")

    def shutdown(self) -> None:
        """The gateway stops: what is under way is answered, then the connection ends."""
        if self._closed or self._stopping:
            return
        self._stopping = True
        if not self._streams:
            self._terminate(_Codes.NO_ERROR, "the gateway stops")

    def lost(self) -> None:
        """The connection is gone."""
        self._closed = True
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.request.lost()

    def let_go(self) -> None:
        """Break the cycle of h2's connection, which is not used any more."""
        empty(self._h2)

    def _terminate(self, code: h2.errors.ErrorCodes, reason: str) -> None:
        if not self._closed:
            self._h2.close_connection(code, additional_data=reason.encode()[:128])
            self._end(reason)

    def _end(self, reason: str) -> None:
        self._send()
        self.lost()
        self._host.end(reason)

    def _send(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._host.out.write(data)
            self._host.dirty()
        if self._stopping and not self._streams and not self._closed:
            self._stopping = False
            self._terminate(_Codes.NO_ERROR, "the gateway stops")


def _text(raw: bytes | str) -> str:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw
