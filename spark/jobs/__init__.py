"""Pipelines over the log: each a module, a verb of `penstock spark`, and a program for `spark-submit`."""
