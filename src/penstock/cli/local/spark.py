"""`penstock spark VERB ...`: the jobs over the log, which have parsers of their own."""

from __future__ import annotations

from penstock.spark.jobs.verbs import VERBS, run

__all__ = ["VERBS", "run"]
