"""Layers between a socket and a stream. The module text is in _layer.pyx."""

import asyncio
from typing import Any

from penstock.protocols.net._stream import Wire

class Layer(Wire):
    """A layer below a stream, or below another layer. A class that derives from it is its transport, too."""

    below: Any
    """The socket, or the layer below; from `connection_made` on."""

    def __init__(self, above: asyncio.BufferedProtocol | Layer) -> None: ...
