"""Output for people who look at a terminal: tables, a view that refreshes itself, bars of progress.

Pipes, files and terminals that can do nothing (TERM=dumb) get plain text instead, and rich is not imported.
With NO_COLOR there is plain text, too; only tables are as wide as the terminal.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = [
    "fits",
    "folded",
    "has_width",
    "live",
    "progress",
    "show_table",
    "table",
    "takes_styles",
    "until_interrupted",
]


def has_width(stream: TextIO) -> bool:
    """Whether somebody looks at this stream, to whom a line that is too long is hard to read."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def takes_styles(stream: TextIO) -> bool:
    """Whether somebody looks at this stream who wants more than plain text."""
    return has_width(stream) and not os.environ.get("NO_COLOR")


def folded(text: str, stream: TextIO, indent: str = "    ") -> str:
    """The text in lines as wide as the terminal, broken between words; as it is where no terminal is.

    `indent` is in front of the further lines.
    """
    if not stream.isatty():
        return text
    from textwrap import fill  # here: most output is no text

    width = shutil.get_terminal_size().columns
    return "\n".join(
        fill(line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
        for line in text.split("\n")
    )


_TITLES: Final = {
    "MESSAGES_READY": "READY",
    "MESSAGES_UNACKNOWLEDGED": "UNACKED",
    "RECV_OCT": "RECEIVED",
    "SEND_OCT": "SENT",
}
"""Shorter names of columns for people; --columns has the names of the API, and so has plain text."""


_LEAST: Final = 5
"""Characters of a cell that are read as a word when it is folded."""


def fits(widths: Sequence[int]) -> bool:
    """Whether a table of columns that would be so wide can be read in the terminal, with folded cells."""
    least = sum(min(width, _LEAST) + 2 for width in widths) - 2
    return least <= shutil.get_terminal_size().columns


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> Table:
    """A table as wide as the terminal allows; what does not fit is folded, so that it can be copied whole.

    Args:
        columns: The names above.
        rows: Texts, printed as they are.
        numbers: For each column, whether it has numbers, which stand at its right.

    """
    from rich.table import Table
    from rich.text import Text

    columns = [_TITLES.get(name, name) for name in columns]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    widths = [max(len(name), *(len(row[at]) for row in rows), 0) for at, name in enumerate(columns)]
    is_tight = sum(widths) + 2 * (len(widths) - 1) > shutil.get_terminal_size().columns
    for name, number in zip(columns, numbers, strict=True):
        # A name of several words takes several lines rather than the room of the texts below it.
        title = Text(name.replace("_", "_\n") if is_tight else name)
        made.add_column(title, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell, style="dim" if cell == "-" else "") for cell in row))
    return made


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    """Print a table, with NO_COLOR without styles."""
    from rich.console import Console

    Console(color_system="auto" if takes_styles(sys.stdout) else None).print(table(columns, rows, numbers))


@contextmanager
def live() -> Iterator[Callable[[RenderableType], None]]:
    """The whole terminal until the end of the block; a call of the result shows something there."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as view:
        yield lambda shown: view.update(shown, refresh=True)


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """The block may repeat its work while a call of the result is true; Ctrl-C ends it, and is no error.

    An exception alone is not enough: the interpreter drops a KeyboardInterrupt that reaches it inside a
    finalizer, such as the one of a response of http.client.
    """
    is_interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: not is_interrupted
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress(total: int | None, text: str, *, unit: str) -> Iterator[Callable[[int], Any]]:
    """A bar on standard error; a call of the result says how much more was done.

    Args:
        total: How much there is; None: it is not known.
        text: The words beside the bar.
        unit: "bytes", or the name of what is counted.

    """
    if not takes_styles(sys.stderr):
        yield lambda count: None
        return
    from rich import progress as bars
    from rich.console import Console

    is_bytes = unit == "bytes"
    done: list[bars.ProgressColumn] = (
        [bars.DownloadColumn(), bars.TransferSpeedColumn()]
        if is_bytes
        else [bars.TextColumn(f"{{task.completed:.0f}} {unit}")]
    )
    columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), *done, bars.TimeRemainingColumn()]
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda count: bar.advance(task, count)
