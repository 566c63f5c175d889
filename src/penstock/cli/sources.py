"""Where a configuration comes from: the options that say so, and the configuration that they mean."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import Loaded

__all__ = ["add_sources", "data_dir", "loaded"]


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="read this TOML file")
    parser.add_argument("--data", metavar="DIR", help="the folder of the log (log.data_dir)")
    parser.add_argument(
        "--set",
        metavar="SECTION.KEY=VALUE",
        action="append",
        default=[],
        help="set one option; may be given several times",
    )
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="debug, info, warning or error (server.log_level)"
    )


def loaded(parsed: argparse.Namespace) -> Loaded:
    """The configuration. Raises ConfigError."""
    from penstock.config import load

    flags = {}
    if parsed.data is not None:
        flags["log.data_dir"] = ("--data", parsed.data)
    if parsed.log_level is not None:
        flags["server.log_level"] = ("--log-level", parsed.log_level)
    if getattr(parsed, "salvage", False):
        flags["log.salvage"] = ("--salvage", "true")
    return load(file=parsed.config, environ=os.environ, sets=parsed.set, flags=flags)


def data_dir(parsed: argparse.Namespace) -> Path:
    """The data folder. Raises ConfigError."""
    return Path(loaded(parsed).config.log.data_dir)
