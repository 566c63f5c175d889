"""WebSocket frames in plain Python: what a client sends, and what it comes to on the server's side."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Stream", "encode", "masked", "read"]


def encode(
    opcode: int,
    payload: bytes,
    *,
    fin: bool = True,
    mask: bytes | None = b"\x12\x34\x56\x78",
    reserved: int = 0,
    length_bytes: int | None = None,
) -> bytes:
    """One frame; mask None = unmasked; `length_bytes` 0, 2 or 8 forces a form of the length."""
    size = len(payload)
    if length_bytes is None:
        length_bytes = 0 if size < 126 else 2 if size < 65536 else 8
    code = {0: size, 2: 126, 8: 127}[length_bytes]
    head = bytes([(0x80 if fin else 0) | reserved << 4 | opcode, (0x80 if mask is not None else 0) | code])
    head += size.to_bytes(length_bytes, "big") if length_bytes else b""
    if mask is None:
        return head + payload
    return head + mask + masked(payload, mask)


def masked(data: bytes, mask: bytes) -> bytes:
    """data with its byte i xored with mask[i % 4]; twice is once back."""
    key = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")


@dataclass
class Stream:
    """The content of a stream of frames."""

    payload: bytes = b""
    pings: list[bytes] = field(default_factory=list)
    close: bytes | None = None
    fault: int | None = None
    """Close code."""


def read(data: bytes) -> Stream:
    """Read a stream that may end in the middle of a frame."""
    stream = Stream()
    message = False
    while len(data) >= 2:
        first, second = data[0], data[1]
        opcode, fin, length = first & 15, bool(first & 0x80), second & 0x7F
        control = opcode >= 8
        if first & 0x70 or not second & 0x80 or opcode in range(3, 8) or opcode > 10:
            stream.fault = 1002
        elif control and (not fin or length > 125):
            stream.fault = 1002
        elif opcode == 0 and not message:
            stream.fault = 1002
        elif opcode == 1:
            stream.fault = 1003
        elif opcode == 2 and message:
            stream.fault = 1002
        if stream.fault is not None:
            break
        extra = {126: 2, 127: 8}.get(length, 0)
        if len(data) < 2 + extra + 4:
            break
        if extra:
            length = int.from_bytes(data[2 : 2 + extra], "big")
            if length < (126 if extra == 2 else 65536) or length >= 1 << 63:
                stream.fault = 1002
                break
        mask = data[2 + extra : 6 + extra]
        body = data[6 + extra : 6 + extra + length]
        data = data[6 + extra + length :]
        plain = masked(body, mask)
        whole = len(body) == length
        if not control:
            message = not fin
            stream.payload += plain
        elif whole and opcode == 9:
            stream.pings.append(plain)
        elif whole and opcode == 8:
            if length == 1:
                stream.fault = 1002
            else:
                stream.close = plain
            break
        if not whole:
            break
    return stream
