"""The folder of each worker's log."""

from __future__ import annotations

from pathlib import Path

__all__ = ["worker_folder"]


def worker_folder(data_dir: str | Path, number: int) -> Path:
    """The data folder of a worker: worker 0 has what a gateway of one process has."""
    return Path(data_dir) / f"worker-{number:03}" if number else Path(data_dir)
