"""The log for Spark: a data source (`source`), what it is made of, and pipelines on top of it.

Importing this loads nothing: executors and the command import the modules they need.
"""
