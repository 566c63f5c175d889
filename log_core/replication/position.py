"""POSITION: how far a data folder follows the journal, in one small file beside the log's own.

It is written behind the changes that it names, so a reader that goes on from it repeats some entries. That is
harmless: each entry sets something, and the repetition ends no earlier than the first reading did.

A folder whose process was killed is as complete as POSITION says, as long as the machine did not restart
(`boot`). After a clean stop everything was synced, and `boot` is empty. A folder that was an owner's and was
not closed may have changes that the journal does not: it must be made anew. OWNER, an empty file, says the
same from the claim on until POSITION is written again: clients wait, and to replace a file may take the disk
ten milliseconds.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass

__all__ = ["Begin", "Position", "boot_id", "forget_journal", "refuse_replicated"]

NAME: Final = "POSITION"
_OWNER: Final = "OWNER"


def forget_journal(folder: Path) -> bool:
    """Have no node go on from the folder: it is a gateway's alone from now on. Whether it was a node's."""
    path = folder / NAME
    found = path.exists()
    path.unlink(missing_ok=True)
    (folder / _OWNER).unlink(missing_ok=True)
    return found


def refuse_replicated(folder: Path) -> None:
    """Raises StartError: the folder follows a journal, so a change of it alone would make it differ."""
    if (folder / NAME).exists():
        raise StartError(
            f"{folder} is a node's: Kafka keeps what is in it, and no tool may change it",
            remedy="`penstock cluster rebuild` makes it anew; or go back to one machine, see "
            "docs/how-to/cluster.md, and try again",
        )


def boot_id() -> str:
    """A name of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Begin(NamedTuple):
    """Where the newest copy of a file begins in the journal."""

    offset: int
    at_bytes: int
    """Bytes of all entries before it, ever."""


@dataclass(slots=True)
class Position:
    """The contents of POSITION."""

    journal: str
    """Name of the journal that the folder follows."""
    offset: int = 0
    """Of the next entry to read."""
    claim: int = -1
    """Offset of the last CLAIM before it; -1 = none."""
    index: int = 0
    """Of the last entry of that owner that counted."""
    nbytes: int = 0
    """Bytes of all entries ever appended, as far as this folder knows."""
    owner: bool = False
    """The folder was an owner's, which has not closed it."""
    missing: int = 0
    """Files of the folder that a first owner has still to send: without them nobody may serve."""
    boot: str = ""
    """The start of the machine whose memory may hold parts of the folder; empty: all of it is on the disk."""
    begins: dict[str, Begin] = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """Whether a standby may go on from here."""
        return not self.owner and self.boot in ("", boot_id())

    def write(self, folder: Path, *, sync: bool = False) -> None:
        """Replace the file in the data folder `folder`. Raises OSError."""
        path = folder / NAME
        new = path.with_name(f"{NAME}.new")
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})  # `dump` is slower
        with new.open("w") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        new.replace(path)
        if not self.owner:
            (folder / _OWNER).unlink(missing_ok=True)

    def begin_to_own(self, folder: Path) -> None:
        """The folder is an owner's from now on. Raises OSError."""
        self.owner = True
        (folder / _OWNER).touch()

    @classmethod
    def read(cls, folder: Path) -> Position | None:
        """From the data folder `folder`; None: it has none. Raises StartError: it cannot be read."""
        path = folder / NAME
        try:
            fields = json.loads(path.read_text())
            found = cls(**fields)
            found.owner |= (folder / _OWNER).exists()
            found.begins = {name: Begin(*begin) for name, begin in fields["begins"].items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StartError(
                f"{path} cannot be read: {error}",
                remedy="move the data folder away; this node makes a new one from the journal",
            ) from error
        return found
