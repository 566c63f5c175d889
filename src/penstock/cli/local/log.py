"""`penstock log ...`: look into a log on disk, check it, mend it, carry it elsewhere.

Exit codes of all of them: 0 done and nothing amiss, 1 it could not be done, 2 the command line or the
configuration is wrong, 3 done, and damage was found or something was lost (it is told on standard error).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.sources import add_sources, data_dir
from penstock.cli.terminal import progress
from penstock.errors import ConfigError, StartError

if TYPE_CHECKING:
    from penstock.log_core.files.layout import Folder

__all__ = ["COMMANDS", "DAMAGED"]

DAMAGED: Final = 3
"""Exit code: it was done, and something is damaged or lost."""


def _add_log(log: Parser) -> None:
    log.description = (
        "Look into a log on disk, check it, mend it, carry it elsewhere. Exit code 3: damage was found."
    )
    verbs = log.add_subparsers(title="what to do", metavar="WHAT", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> Any:
        parser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip())
        parser.add_argument(
            "dir",
            metavar="DIR",
            nargs="?",
            type=Path,
            help="the data folder (default: that of the configuration)",
        )
        add_sources(parser)

        def started(parsed: argparse.Namespace) -> int:
            parsed.data_dir = parsed.dir if parsed.dir is not None else data_dir(parsed)
            return run(parsed)

        parser.set_defaults(run=started)
        return parser

    reads = "Only reads; the gateway may run meanwhile."
    _output(verb("inspect", _inspect, "list what is in the files of a log", reads))
    _output(verb("verify", _verify, "check every checksum", reads))
    _output(
        verb("stats", _stats, "say what is still needed, by which queue, and why each segment is kept", reads)
    )
    _add_dump(verb("dump", _dump, "print records as lines of JSON", reads))
    mending = verb(
        "repair",
        _repair,
        "cut out what is damaged, keep a copy of it, and say what is lost",
        "Without --apply it only says what it would do. With it the gateway must be stopped.",
    )
    mending.add_argument("--apply", action="store_true", help="do it")
    _output(mending)
    saving = verb(
        "backup",
        _backup,
        "make a consistent copy of the folder while the gateway runs",
        "Shares what never changes by hard links. To restore, move the copy to where the data folder was.",
    )
    saving.add_argument("--to", metavar="TARGET", type=Path, required=True, help="the copy; must not exist")
    saving.add_argument("--copy", action="store_true", help="share nothing: for another file system")
    _output(saving)
    moving = verb(
        "move",
        _move,
        "give a vhost to another worker, which has none yet",
        "The gateway must be stopped. DIR is its data folder, with the folders of its workers in it. All "
        "data of the vhost move with it; the files are shared by hard links.",
    )
    moving.add_argument("--vhost", required=True, help="the vhost")
    moving.add_argument("--worker", type=int, required=True, metavar="N", help="the number of the worker")
    _output(moving)
    leaving = verb(
        "export", _export, "write everything into one portable file", "The gateway may run meanwhile."
    )
    leaving.add_argument("--to", metavar="FILE", type=Path, required=True, help="the file; must not exist")
    _output(leaving)
    coming = verb(
        "import", _import, "make a data folder of an exported file", "The folder must be new or empty."
    )
    coming.add_argument("--from", dest="file", metavar="FILE", type=Path, required=True, help="the file")
    _output(coming)


def _output(parser: argparse.ArgumentParser, default: str = "text") -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default=default,
        help="for people or for programs (%(default)s)",
    )


def _folder(parsed: argparse.Namespace) -> Folder:
    from penstock.log_tools.reading import open_folder

    return open_folder(parsed.data_dir)


def _warn(message: object) -> None:
    print(f"penstock: damaged: {message}", file=sys.stderr)


# Looking


def _inspect(parsed: argparse.Namespace) -> int:
    from penstock.log_tools import inspection

    return DAMAGED if inspection.inspect(_folder(parsed), sys.stdout, as_json=parsed.output == "json") else 0


def _verify(parsed: argparse.Namespace) -> int:
    from penstock.log_tools import inspection

    return DAMAGED if inspection.verify(_folder(parsed), sys.stdout, as_json=parsed.output == "json") else 0


def _stats(parsed: argparse.Namespace) -> int:
    from penstock.log_tools.rendering import json_line, print_stats
    from penstock.log_tools.stats import stats

    found = stats(_folder(parsed))
    if parsed.output == "json":
        sys.stdout.write(json_line(found.as_dict()).decode())
    else:
        print_stats(found, sys.stdout)
    for damage in found.damage:
        _warn(damage)
    return DAMAGED if found.damage else 0


# Mending


def _repair(parsed: argparse.Namespace) -> int:
    from penstock.log_tools.rendering import json_line, print_repair
    from penstock.log_tools.repair import repair

    done = repair(_folder(parsed), apply=parsed.apply)
    if parsed.output == "json":
        sys.stdout.write(json_line(done.as_dict()).decode())
    else:
        print_repair(done, sys.stdout)
    return DAMAGED if done.lost or (done.findings and not parsed.apply) else 0


# Copying


def _export(parsed: argparse.Namespace) -> int:
    from dataclasses import asdict

    from penstock.log_tools.export import export

    folder = _folder(parsed)
    told: list[object] = []

    def tell(what: object) -> None:
        told.append(what)
        _warn(what)

    total = sum(path.stat().st_size for path in folder.wal.glob("*.wal"))
    with progress(total, "copied", unit="bytes") as did:
        done = export(folder, parsed.to, tell, did)
    _say(parsed, asdict(done), f"{done.file}: {done.records} records, {done.rows} rows, up to {done.end}")
    return DAMAGED if told else 0


def _import(parsed: argparse.Namespace) -> int:
    from dataclasses import asdict

    from penstock.log_tools.importing import import_file

    try:
        total = parsed.file.stat().st_size
    except OSError as error:
        raise StartError(f"{parsed.file} cannot be read: {error.strerror}") from error
    with progress(total, "copied", unit="bytes") as did:
        done = import_file(parsed.file, parsed.data_dir, did)
    _say(parsed, asdict(done), f"{done.folder}: {done.records} records, {done.rows} rows, up to {done.end}")
    return 0


def _say(parsed: argparse.Namespace, figures: dict[str, Any], text: str) -> None:
    """Report the work, for people or for programs."""
    from penstock.log_tools.rendering import json_line

    print(json_line(figures).decode().rstrip() if parsed.output == "json" else text)


def _backup(parsed: argparse.Namespace) -> int:
    from dataclasses import asdict

    from penstock.log_tools.backup import backup
    from penstock.log_tools.rendering import json_line

    folder = _folder(parsed)
    total = sum(path.stat().st_size for path in folder.wal.glob("*.wal")) if parsed.copy else None
    with progress(total, "copied", unit="bytes") as did:
        done = backup(folder, parsed.to, copy=parsed.copy, progress=did)
    if parsed.output == "json":
        sys.stdout.write(json_line(asdict(done)).decode())
        return 0
    print(f"{done.target}: the log up to position {done.last_position}")
    print(f"shared: {done.linked_files} files, {done.linked_bytes} bytes; ", end="")
    print(f"copied: {done.copied_files} files, {done.copied_bytes} bytes")
    print(f"to restore: stop the gateway, move {done.source} away, and move (or cp -a) this copy there")
    return 0


def _move(parsed: argparse.Namespace) -> int:
    from dataclasses import asdict

    from penstock.log_tools.moving import move

    done = move(parsed.data_dir, parsed.vhost, parsed.worker)
    text = f"vhost '{done.vhost}' belongs to worker {done.to_worker} from the next start on, in {done.folder}"
    if done.replaced:
        text += f"\nwhat that worker had, no vhost among it, is in {done.replaced}"
    _say(parsed, asdict(done), text)
    return 0


# Records


def _add_dump(parser: Parser) -> None:
    when = "a time (2024-05-01T10:00:00Z, ms since the epoch) or an interval ago (-15m, -2h, -7D)"
    parser.add_argument("--first", type=int, default=0, metavar="POSITION", help="from this position on")
    parser.add_argument("--last", type=int, default=2**64 - 1, metavar="POSITION", help="up to this position")
    parser.add_argument("--since", metavar="TIME", help=f"appended at or after: {when}")
    parser.add_argument("--until", metavar="TIME", help="appended before")
    parser.add_argument(
        "--feed", type=int, action="append", metavar="ID", help="in this feed; may be repeated"
    )
    parser.add_argument("--queue", metavar="NAME", help="in a feed that this queue or session reads")
    parser.add_argument("--vhost", default="/", help="of --queue (default: /)")
    parser.add_argument(
        "--kind",
        action="append",
        choices=("record", "state", "delayed"),
        help="only messages, changes of tables, or delayed messages; may be repeated (default: all)",
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="at most N lines")
    parser.add_argument(
        "--body",
        choices=("auto", "base64", "none"),
        default="auto",
        help="auto: text where it is (%(default)s)",
    )
    _output(parser, "json")


def _dump(parsed: argparse.Namespace) -> int:
    from penstock.log_tools import dump
    from penstock.log_tools.reading import Span

    folder = _folder(parsed)
    feeds = set(parsed.feed) if parsed.feed else None
    if parsed.queue is not None:
        feeds = (feeds or set()) | dump.feeds_of_queue(folder, parsed.vhost, parsed.queue)
    span = Span(
        parsed.first,
        parsed.last,
        _moment("--since", parsed.since, 0),
        _moment("--until", parsed.until, 2**63 - 1),
    )
    wanted = dump.Wanted(span, feeds, parsed.kind or dump.ALL_KINDS, parsed.limit, parsed.body)
    damages: list[object] = []

    def told(damage: object) -> None:
        damages.append(damage)
        _warn(damage)

    dump.dump(folder, wanted, sys.stdout.buffer, told, as_json=parsed.output == "json")
    return DAMAGED if damages else 0


def _moment(flag: str, value: str | None, default: int) -> int:
    """A time of the command line in ms since the epoch. Raises ConfigError."""
    if value is None:
        return default
    from penstock.router.queues.start_position import parse_since

    found = parse_since(int(value) if value.isdecimal() else value, int(time.time() * 1000))
    if found is None or found.position:
        raise ConfigError(
            f"{value!r} is no time",
            source=f"flag {flag}",
            remedy="write 2024-05-01T10:00:00Z, milliseconds since the epoch, or an interval ago: -15m",
        )
    return found.time_ms


COMMANDS: Final[dict[str, Builder]] = {"log": _add_log}
