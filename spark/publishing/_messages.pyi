"""Rows of Arrow's as the frames of AMQP publishes, without a Python object per row."""

from typing import final

from typing_extensions import Buffer

COLUMNS: tuple[str, ...]
"""The columns that a message is made of; the last three are those inside the lists of `headers`."""

Column = tuple[int, Buffer | None, Buffer | None, Buffer | None]
"""(first row, bitmap of validity or None: none is null, int32 offsets of text and lists, values), as Arrow
has them. The caller has checked that they are whole (`RecordBatch.validate`)."""

@final
class Encoder:
    """Encodes publishes on channel 1, numbered for one producer, or for one for each share of the keys."""

    def __init__(
        self,
        producer: bytes,
        frame_max: int,
        *,
        exchange: bytes | None = None,
        routing_key: bytes | None = None,
        by_offset: bool = False,
        sequence: int = 0,
        shares: int = 0,
        tasks: int = 1,
        task: int = 0,
    ) -> None:
        """Args:
        producer: Its name, 1 to 255 bytes; with shares what their names begin with.
        frame_max: The largest frame of the connection, at least 4096 bytes.
        exchange, routing_key: For all; None: what each row says.
        by_offset: A message's number is its `offset`, which must rise from row to row.
        sequence: Otherwise the number of a producer's first message.
        shares: How many there are, at most 256; 0: one producer for all rows.
        tasks, task: Rows of which share modulo `tasks` is not `task` are left out.

        """
    def load(self, rows: int, columns: dict[str, Column]) -> None:
        """Take these rows next. Keeps the buffers until others are loaded.

        Raises ValueError: a column that is none of COLUMNS.
        """
    def encode(self, first: int, rows_max: int, bytes_max: int) -> tuple[bytes, int, int, int]:
        """The frames of the rows from `first` on.

        Stops behind the row that brings the frames to `bytes_max`, after `rows_max` messages, or at the end.

        Returns the frames, the row behind the last, how many messages they are, and the bytes of their
        bodies. Raises ValueError: AMQP cannot say a row; nothing of this call is to be sent.
        """
