"""Running a streaming query to its end, over what is no fault of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run_to_end"]

_LOG: Final = logging.getLogger("penstock.spark")

_WORKER_LATE: Final = "Python worker failed to connect back"
"""Spark's error when one of its Python processes needed more than 10 s to start. That limit cannot be
configured, and on a busy machine importing PySpark and Arrow may take longer."""
_STARTS_MAX: Final = 60


def run_to_end(
    start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object] | None = None
) -> StreamingQuery:
    """Start a query and wait until it ends; start it again, from its checkpoint, when Spark's process for
    the source was late. Raises what ended the query otherwise.

    `wait` waits in place of `awaitTermination`, and raises what that raises.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(1, _STARTS_MAX + 1):
        query = start()
        try:
            if wait is None:
                query.awaitTermination()
            else:
                wait(query)
        except StreamingQueryException as error:
            if _WORKER_LATE not in str(error) or attempt == _STARTS_MAX:
                raise
            _LOG.warning("the machine is busy: Spark's process was late, the query starts again")
        else:
            return query
    raise AssertionError
