"""The command `penstock`: serve, look at the configuration and at a log, manage a running gateway.

Exit codes: 0 all is well, 1 it could not be done (the reason and the remedy are on standard error),
2 the command line or the configuration is wrong, 3 a log is damaged. Nothing but the standard library is
imported until a command needs it, so that `penstock --version` and `penstock config` are quick.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.cli.audit import add_audit
from penstock.cli.bench import add_bench
from penstock.cli.definitions import add_definitions
from penstock.cli.dlq import add_dlq
from penstock.cli.log import add_log_commands
from penstock.cli.manage import add_things
from penstock.cli.messages import add_messages
from penstock.cli.nouns import Nouns, add_target
from penstock.cli.top import add_top
from penstock.cli.topics import add_topics
from penstock.cli.webhooks import add_webhooks
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.config import Loaded

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process when None) and return its exit code."""
    parsed = _parsed(sys.argv[1:] if arguments is None else list(arguments))
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except PenstockError as error:
        print(f"penstock: error: {error}", file=sys.stderr)
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
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no error, and the interpreter must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _of_kernels(error: ImportError | ValueError) -> bool:
    """Whether a kernel is missing, or older or newer than what imports it."""
    # Python names the module that lacks something; Cython puts it into the text.
    text = str(error)
    if isinstance(error, ValueError):
        return "size changed, may indicate binary incompatibility" in text
    return (error.name or "").startswith("penstock.") or "penstock." in text


# Commands


def _serve(parsed: argparse.Namespace) -> int:
    loaded = _loaded(parsed)
    config = loaded.config
    from penstock import default_listeners, logs
    from penstock.server import serve

    logs.configure(config.server.log_level, config.server.log_format)
    taken = default_listeners.taken(loaded)
    config = default_listeners.without(config, taken)
    if config.log.fsync == "never":
        logging.getLogger("penstock.server").warning(
            "log.fsync is never: confirmed messages are lost when the power fails"
        )
    return serve(config, lambda: default_listeners.without(_loaded(parsed).config, taken))


def _config_show(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.show(_loaded(parsed), origin=parsed.origin), end="")
    return 0


def _config_schema(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.schema(), end="")
    return 0


def _config_reference(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.reference(), end="")
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from penstock.cli import doctor

    return doctor.run(_loaded(parsed).config, parsed.url)


def _completion(parsed: argparse.Namespace) -> int:
    from penstock.cli import completion, rabbitmqctl

    print(completion.script(parsed.shell, _parser(), rabbitmqctl.VERBS), end="")
    return 0


def _rabbitmqctl(parsed: argparse.Namespace) -> int:
    from penstock.cli import rabbitmqctl

    return rabbitmqctl.run(parsed.words)


def _spark(parsed: argparse.Namespace) -> int:
    from penstock.spark.jobs import verbs

    return verbs.run(parsed.words)


# The command line


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    if arguments[:1] == ["rabbitmqctl"] and arguments[1:] not in (["-h"], ["--help"]):
        # Its options are its own and may stand anywhere.
        return argparse.Namespace(run=_rabbitmqctl, words=arguments[1:])
    if arguments[:1] == ["spark"]:
        # Its jobs have parsers of their own, which need not be loaded for other commands.
        return argparse.Namespace(run=_spark, words=arguments[1:])
    return _parser().parse_args(arguments)


def _loaded(parsed: argparse.Namespace) -> Loaded:
    from penstock.config import load

    flags = {}
    if parsed.data is not None:
        flags["log.data_dir"] = ("--data", parsed.data)
    if parsed.log_level is not None:
        flags["server.log_level"] = ("--log-level", parsed.log_level)
    if getattr(parsed, "salvage", False):
        flags["log.salvage"] = ("--salvage", "true")
    return load(file=parsed.config, environ=os.environ, sets=parsed.set, flags=flags)


def _data_dir(parsed: argparse.Namespace) -> Path:
    return Path(_loaded(parsed).config.log.data_dir)


class _Parser(argparse.ArgumentParser):
    """An interval such as "-1h" is a value, as a negative number is, and no unknown option."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._negative_number_matcher = re.compile(r"-[0-9]+(\.[0-9]+|[A-Za-z])?$")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penstock",
        description="One gateway for AMQP and MQTT clients that keeps everything they send in one log.",
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = commands.add_parser(
        "serve",
        help="run the gateway until SIGTERM or SIGINT",
        description="Run the gateway. When it serves, one line 'ready amqp=HOST:PORT mqtt=HOST:PORT "
        "data=DIR' goes to standard output; log lines go to standard error. SIGTERM or SIGINT stops it "
        "cleanly.",
        epilog="penstock config show lists all options; later sources overrule earlier ones: "
        "file, environment PENSTOCK__SECTION__KEY, --set, --data and --log-level.",
    )
    _add_sources(serve)
    serve.add_argument(
        "--salvage", action="store_true", help="start on a damaged log, without what is lost (log.salvage)"
    )
    serve.set_defaults(run=_serve)

    config = commands.add_parser(
        "config", help="show the configuration", description="Show the configuration."
    )
    topics = config.add_subparsers(title="what to show", metavar="WHAT", required=True)
    show = topics.add_parser("show", help="the values in force, as a TOML file with secrets masked")
    _add_sources(show)
    show.add_argument("--origin", action="store_true", help="say where each value came from")
    show.set_defaults(run=_config_show)
    topics.add_parser("schema", help="a JSON schema of the TOML file").set_defaults(run=_config_schema)
    topics.add_parser("reference", help="the reference page, as Markdown").set_defaults(run=_config_reference)

    add_log_commands(commands, _add_sources, _data_dir)
    nouns = Nouns(commands)
    for add_nouns in (add_things, add_definitions, add_webhooks, add_audit, add_topics, add_dlq):
        add_nouns(nouns)
    for add_verbs in (add_messages, add_bench, add_top):
        add_verbs(commands)
    doctor = commands.add_parser(
        "doctor",
        help="say what is unsafe or wrong, and what to do",
        description="Say what is unsafe or wrong with the configuration, this machine, and the gateway "
        "that answers at --url. The exit code is 1 when there is an error.",
    )
    _add_sources(doctor)
    add_target(doctor)
    doctor.set_defaults(run=_doctor)
    completion = commands.add_parser(
        "completion",
        help="what a shell needs to complete commands",
        description="Print what a shell needs to complete commands: source <(penstock completion bash)",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(run=_completion)
    commands.add_parser(
        "spark",
        help="run a pipeline over the log: sink, tier, dedup, telemetry, replay, analytics, dlq, doctor",
    )
    commands.add_parser(
        "rabbitmqctl",
        help="answer a verb of RabbitMQ's rabbitmqctl",
        description="penstock rabbitmqctl [--url URL] VERB ...: answer a verb of RabbitMQ's rabbitmqctl "
        "in its words and formats. Without a verb it lists them.",
    )
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
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
