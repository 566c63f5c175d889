"""Messages that wait to be given to a consumer: frames as they are; records are made when taken."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from penstock.protocols.native.codec._records import Record

_Kind = TypeVar("_Kind", bound=Record)

class Inbox(Generic[_Kind]):
    """In the order of arrival. Counts what was given out, by which credit is granted again."""

    takes_stored: bool
    """Whether `deliver_stored` may be called; the same for all."""
    source: Any
    """The `source` that each record is given when it is made."""
    position: int
    """Of the last record that was given out; 0: none was."""

    def __init__(self, kind: type[_Kind], source: Any, used_most: int, used_bytes_most: int) -> None:
        """`used_most`, `used_bytes_most`: when so much was given out, `due` is True.

        The records are made without calling `kind.__init__`.
        """

    @property
    def waiting(self) -> int:
        """Records that are here."""

    @property
    def due(self) -> bool:
        """It is time for `granted`."""

    def deliver(self, payload: bytes) -> tuple[int, Sequence[_Kind]]:
        """The payload of a DELIVER frame: (request of the pull, its records), or (0, ()): it waits here.

        Raises ValueError: cut short, or bytes left over.
        """

    def deliver_stored(self, payload: bytes) -> None:
        """The payload of a DELIVER_STORED frame. Raises ValueError: it is damaged; nothing of it is here."""

    def next(self) -> _Kind | None:
        """The first record; None: nothing is here."""

    def take(self, most: int) -> list[_Kind]:
        """The first records, as many as there are."""

    def columns(self, most: int) -> Columns[_Kind]:
        """The same, not made."""

    def head(self) -> int | None:
        """The position of the first record; None: nothing is here."""

    def clear(self) -> int:
        """Drop what is here, which counts as given out; how many records that were."""

    def granted(self) -> tuple[int, int]:
        """Records and bytes that were given out since the last call; bytes as CREDIT counts them."""

class Columns(Generic[_Kind]):
    """Records that were given out together. Made by `Inbox.columns`; holds the frames they came in."""

    @property
    def count(self) -> int: ...
    @property
    def source(self) -> Any:
        """That of its records."""

    def records(self) -> list[_Kind]:
        """New ones with each call."""

    def bodies(self) -> list[bytes]: ...
    def positions(self) -> list[int]: ...
    def timestamps_ms(self) -> list[int]: ...
    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of the runs of their tags."""
