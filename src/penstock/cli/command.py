"""Runs the command `penstock`: finds the command that was named, runs it, and knows the exit codes.

Exit codes: 0 all is well, 1 it could not be done (the reason and the remedy are on standard error),
2 the command line or the configuration is wrong, 3 a log is damaged. Nothing but the table of commands is
imported until a command is named, so that `penstock --help` and `penstock --version` are quick.
"""

from __future__ import annotations

import sys

from penstock import __version__
from penstock.cli.commands import FOREIGN, MODULES, overview

TYPE_CHECKING = False
"""As typing has it for checkers; loading typing takes longer than all else here."""

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process when None) and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        print(overview(), file=sys.stderr)
        return 2
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] in ("-h", "--help"):
        return _told(overview())
    if words[0] == "--version":
        return _told(f"penstock {__version__}")
    return _guarded(words)


def _told(text: str) -> int:
    try:
        print(text, flush=True)
    except OSError as error:
        return _unwritten(error)
    return 0


def _guarded(words: Sequence[str]) -> int:
    from penstock.cli.streams import as_text, prepare_streams
    from penstock.errors import ConfigError, PenstockError

    try:
        prepare_streams(silent=words[0] == "serve")
        code = _run(as_text(words))
        sys.stdout.flush()
    except PenstockError as error:
        from penstock.cli.terminal import folded

        print(folded(f"penstock: error: {error}", sys.stderr), file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    except (ImportError, ValueError) as error:
        if not _of_kernels(error):
            raise
        print(
            f"penstock: error: the compiled kernels do not fit the sources: {error}; in a checkout build "
            "them with `make kernels`, otherwise install the package again",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        # That of a gateway may come from anywhere: its log says where.
        return _unwritten(error, "serve" if words[0] == "serve" else "standard output")
    return code


def _unwritten(error: OSError, where: str = "standard output") -> int:
    """The exit code when output could not be written."""
    import os

    # The interpreter would try to write the rest when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0  # its reader went away, as `| head` does
    print(f"penstock: error: {error.filename or where}: {error.strerror or error}", file=sys.stderr)
    return 1


def _run(words: Sequence[str]) -> int:
    name, *rest = words
    if name in FOREIGN:
        from importlib import import_module

        code: int = import_module(f"penstock.cli.{MODULES[name][0]}").run(rest)
        return code
    from penstock.cli.parsing import parser_of, unknown_command

    if name not in MODULES:
        raise unknown_command(name, rest)
    parsed = parser_of(name).parse_args(rest)
    code = parsed.run(parsed)
    return code


def _of_kernels(error: ImportError | ValueError) -> bool:
    """Whether a kernel is missing, or older or newer than what imports it."""
    # Python names the module that lacks something; Cython puts it into the text.
    text = str(error)
    if isinstance(error, ValueError):
        return "size changed, may indicate binary incompatibility" in text
    return (error.name or "").startswith("penstock.") or "penstock." in text
