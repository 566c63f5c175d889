"""`_properties.pyi` in Python alone: for the client where no compiled kernel is.

`_properties.pyx` has the layout.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.protocols.properties._tables import check_table, decode_table, table_size

_HEADERS, _DELIVERY_MODE, _PRIORITY, _REPLY_TO, _EXPIRATION, _TIMESTAMP, _USER_ID = 13, 12, 11, 9, 8, 6, 4
_TTL: Final = re.compile(rb"[0-9]{1,10}")
_WORDS: Final = ("CC", "BCC", "x-mqtt-retain")
_OURS: Final = "x-penstock-"


def _has_words(table: bytes) -> bool:
    """Whether a well-formed table has a key for the gateway: CC, BCC, or one of its own."""
    keys = decode_table(table, entries=len(table)) if check_table(table) else {}
    return any(key in _WORDS or (key.startswith(_OURS) and key != _OURS) for key in keys)


def parse(block: bytes) -> tuple[int, int, int, bytes | None, bool] | None:
    if len(block) < 2:
        return None
    flags = int.from_bytes(block[:2], "big")
    if flags & 3:
        return None
    mode = priority = ttl = 0
    user: bytes | None = None
    special = False
    at, end = 2, len(block)
    for bit in range(15, 1, -1):
        if not flags >> bit & 1:
            continue
        if bit == _HEADERS:
            size = table_size(block, at, end, 1)
            if size < 0:
                return None
            special = special or _has_words(block[at : at + size])
        elif bit in (_DELIVERY_MODE, _PRIORITY):
            size = 1
            if at + size > end:
                return None
            if bit == _PRIORITY:
                priority = block[at]
            else:
                mode = block[at]
        elif bit == _TIMESTAMP:
            size = 8
        else:
            if at >= end:
                return None
            size = 1 + block[at]
            if at + size > end:
                return None
            text = block[at + 1 : at + size]
            if bit == _EXPIRATION:
                if _TTL.fullmatch(text) and int(text) < 2**32:
                    ttl = int(text) or 1
                else:
                    special = True
            elif bit == _USER_ID:
                user = text
            elif bit == _REPLY_TO and text.startswith(b"amq.rabbitmq.reply-to"):
                special = True
        at += size
        if at > end:
            return None
    return (mode, priority, ttl, user, special) if at == end else None
