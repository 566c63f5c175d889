"""Spark data source and jobs: not built yet."""
