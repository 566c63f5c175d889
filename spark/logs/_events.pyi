"""Blocks of events in the log to columns in Arrow's layout, a row per event."""

from penstock.spark.logs._columns import Rows

EVENT_NAMES: tuple[str, ...]
"""The columns of the table `events`, in their order."""

class EventRows(Rows):
    """As `Rows`, with `names` = EVENT_NAMES. `take` raises ValueError for a block that was made otherwise."""
