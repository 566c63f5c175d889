"""What PySpark does in its workers after each task, made cheap.

A worker of PySpark collects garbage between two tasks. That goes through all that is imported (pyspark,
pyarrow and, where they are installed, numpy and pandas): 20 to 30 ms of CPU for each task, a fifth of what
a task costs that reads 32 MiB of the log.
"""

from __future__ import annotations

import gc
import os

from pyspark import TaskContext

__all__ = ["spare_imports"]

_spared = 0
"""The process that has done it; Spark forks its workers."""


def spare_imports() -> None:
    """Exempt from collection what lives when this worker runs the first of our tasks.

    That is what was imported, which stays until the worker ends. In a process that is no worker of Spark's,
    nothing happens.
    """
    global _spared
    if _spared == os.getpid() or TaskContext.get() is None:
        return
    _spared = os.getpid()
    gc.collect()  # what is garbage already must not stay
    gc.freeze()
