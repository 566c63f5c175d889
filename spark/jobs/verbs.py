"""`penstock spark VERB`: finds the job's module and runs it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

from penstock.argument_parser import nearest
from penstock.errors import ConfigError

__all__ = ["VERBS", "run"]

VERBS: Final = {
    "sink": "traffic into a Delta or Parquet table, each message once",
    "dedup": "traffic into a table, of repeated messages the first one",
    "telemetry": "payloads of devices as typed rows or roll-ups, into a table",
    "tier": "cold segments into an archive of Parquet, without a JVM or with Spark",
    "replay": "messages of the log or a table back into a gateway",
    "analytics": "rates, sizes and top talkers, as an HTML report",
    "dlq": "dead letters: what failed, why and from where; requeue them",
    "jobs": "the streaming jobs, and how they are",
    "lag": "how much of the log each job has still to read",
    "stop": "stop a job, and wait until it ended",
    "doctor": "what is missing here, and the command that installs it",
}


def run(words: Sequence[str]) -> int:
    """Run the verb `words` begin with; its exit code. Raises ConfigError: there is no such verb."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: penstock spark VERB ...\n")
        for verb, text in VERBS.items():
            print(f"  {verb:10} {text}")
        print("\npenstock spark VERB --help tells more; docs/reference/spark.md has the spark-submit lines.")
        return 0 if words else 2
    if words[0] not in VERBS:
        raise ConfigError(
            f"there is no verb '{words[0]}' of penstock spark, but {', '.join(VERBS)}",
            remedy=f"{nearest(words[0], VERBS)}`penstock spark --help` says more",
        )
    code: int = importlib.import_module(f"penstock.spark.jobs.{words[0]}").main(words[1:])
    return code
