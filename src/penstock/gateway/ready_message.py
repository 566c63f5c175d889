"""The texts that say where a gateway serves: for a person, for a program, for the service manager."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.config import Config

__all__ = ["listener_lines", "ready_line", "serves_at"]

_LISTENERS: Final = {
    "amqp": ("amqp://", "/", "RabbitMQ's clients; guest with password guest on this machine"),
    "amqps": ("amqps://", "/", "RabbitMQ's clients, with TLS"),
    "mqtt": ("mqtt://", "", "MQTT clients; on this machine they need no login"),
    "mqtts": ("mqtts://", "", "MQTT clients, with TLS"),
    "native": ("penstock://", "/", "the Python SDK and other native clients"),
    "natives": ("penstocks://", "/", "native clients, with TLS"),
    "http": ("http://", "/v1/", "publish and pull over HTTP; GET /openapi.json describes it"),
    "management": ("http://", "/", "the console, for a browser; RabbitMQ's management API at /api/"),
    "metrics": ("http://", "/metrics", "Prometheus"),
}
"""Scheme and path of the address of a listener, and what it is for."""


def ready_line(addresses: Mapping[str, str], config: Config) -> str:
    """The text that is printed when clients can connect: the line of `ready`, and for a person one line
    before it for each listener."""
    words = " ".join(f"{name}={address}" for name, address in addresses.items())
    line = f"ready {words} data={Path(config.log.data_dir).absolute()}"
    return "\n".join((*listener_lines(addresses), line)) if sys.stdout.isatty() else line


def serves_at(addresses: Mapping[str, str]) -> str:
    """The status that the service manager shows while the gateway serves."""
    return "serves " + ", ".join(f"{name} at {address}" for name, address in addresses.items())


def listener_lines(addresses: Mapping[str, str]) -> list[str]:
    """The purpose of each listener, with the address that its clients need."""
    lines = []
    for name, address in addresses.items():
        scheme, path, text = _LISTENERS.get(name, ("", "", ""))
        lines.append(f"  {name:<12}{scheme + address + path:<33}{text}".rstrip())
    return lines
