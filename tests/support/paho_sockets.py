"""Clients of paho, closed so that nothing is left to the garbage collector.

A client is in a reference cycle. Its sockets would be collected before its `__del__` closes them, and Python
warns of each socket that it closes by itself: pytest makes that an error of the test that runs then.
"""

from __future__ import annotations

from paho.mqtt.client import Client

__all__ = ["close"]


def close(client: Client) -> None:
    """Disconnect, end the client's thread if it has one, and close its three sockets."""
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()  # paho has no public name for it
