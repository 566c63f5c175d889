"""The tree of errors: every one says what happened, to which thing, and what to do about it.

    PenstockError
    ├── ConfigError          a mistake in the configuration; names its source and key
    ├── StartError           the gateway cannot start: port taken, data folder locked, disk full
    ├── LogError             the log core: damage, a failed write or sync
    ├── SubscriptionError    queues, cursors, credit
    ├── RoutingError         exchanges, bindings, names
    ├── CodecError           bytes that are no frame of their protocol
    └── ProtocolError        well-formed frames that the protocol forbids here

Each layer derives its own classes from its branch. This module is a leaf: it imports nothing of
penstock, so every layer may import it. An error that goes over a wire carries its code in a
subclass that belongs to that protocol's folder, not here.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from os.path import abspath
from typing import Self

__all__ = [
    "CodecError",
    "ConfigError",
    "ConfigErrors",
    "LogError",
    "PenstockError",
    "ProtocolError",
    "RoutingError",
    "StartError",
    "SubscriptionError",
]


class PenstockError(Exception):
    """The root. `str(error)` is one line: the message, then the remedy when there is one."""

    message: str
    """The event, with the name of the thing that it happened to."""
    remedy: str
    """The remedy, as a sentence in the imperative; empty when there is none."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ConfigError(PenstockError):
    """A mistake in the configuration."""

    source: str
    """Where the mistake stands: a file, an environment variable, a flag, or "" when in none of them."""
    key: str
    """The key it is about, as SECTION.KEY; empty when it is about a whole source."""

    def __init__(self, message: str, *, source: str = "", key: str = "", remedy: str = "") -> None:
        place = ": ".join(part for part in (source, key) if part)
        super().__init__(f"{place}: {message}" if place else message, remedy=remedy)
        self.source = source
        self.key = key


class ConfigErrors(ConfigError):
    """Several mistakes in the configuration. `str(error)` has a line for each."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(f"{len(errors)} mistakes in the configuration:\n  " + "\n  ".join(map(str, errors)))
        self.errors = tuple(errors)
        self.source, self.key = errors[0].source, errors[0].key


class StartError(PenstockError):
    """The gateway cannot start (or not go on); nothing was served and nothing was changed."""

    @classmethod
    def listening(cls, section: str, address: str, error: OSError, *, option: str = "listen") -> Self:
        """The listener of `section` could not be opened at `address`, the value of its `option`."""
        if error.errno == errno.EADDRINUSE:
            what = f"{address} is taken by another process"
            remedy = f'stop that process, or choose another address with --set {section}.{option}="HOST:PORT"'
        elif error.errno == errno.EACCES:
            what = f"this user may not listen on {address}"
            remedy = f"choose a port above 1023 with --set {section}.{option}, or grant CAP_NET_BIND_SERVICE"
        else:
            what = f"cannot listen on {address}: {error.strerror or error}"
            remedy = f"correct {section}.{option}"
        return cls(f"{section}: {what}", remedy=remedy)

    @classmethod
    def data_locked(cls, folder: str, holder: str = "") -> Self:
        """Another process owns the data folder; `holder` says which ("pid 4711") when known."""
        by = f" ({holder})" if holder else ""
        return cls(
            f"the data folder {abspath(folder)} is locked by another penstock{by}",
            remedy="stop that one, or give this one its own folder with --data DIR",
        )

    @classmethod
    def disk_full(cls, folder: str) -> Self:
        """There is no room in the file system of `folder`."""
        return cls(
            f"no space left for the data folder {abspath(folder)}",
            remedy="free some space, or give another folder with --data DIR",
        )

    @classmethod
    def data_unusable(cls, folder: str, error: OSError) -> Self:
        """The data folder cannot be made, read or written."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return cls.disk_full(folder)
        return cls(
            f"cannot use the data folder {abspath(folder)}: {error.strerror or error}",
            remedy="make it a folder that this user may read and write, or give another with --data DIR",
        )


class LogError(PenstockError):
    """The log core: damage found, a write or sync that failed, a position that is not kept."""


class SubscriptionError(PenstockError):
    """Queues and subscriptions: cursors, credit, settlement."""


class RoutingError(PenstockError):
    """Exchanges, bindings, patterns and names."""


class CodecError(PenstockError):
    """Bytes that are no frame of their protocol."""


class ProtocolError(PenstockError):
    """Well-formed frames that the protocol forbids in this place."""
