"""How far a move has come, in a file: one that was interrupted goes on there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from penstock.migrate.report import MigrationError

__all__ = ["Progress"]


class Progress:
    """The number of steps that are done, of one move."""

    def __init__(self, path: Path, move: str) -> None:
        """Read the file at `path`; `move` names what moves whither, and another move begins anew.

        Raises:
            MigrationError: it cannot be read.

        """
        self._path = path
        self._move = move
        self.done = 0
        """Steps that are done; they are acknowledged by the target."""
        try:
            found: Any = json.loads(path.read_text())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise MigrationError(f"{path} cannot be read: {error}", remedy="delete it") from None
        if isinstance(found, dict) and found.get("move") == move:
            self.done = int(found["done"])

    def save(self, done: int) -> None:
        """Note that the first `done` steps are done; on disk when this returns."""
        self.done = done
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("w") as file:
            json.dump({"move": self._move, "done": done}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
