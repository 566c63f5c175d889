"""Crash tests: kill -9 under load, and a checker that compares what was confirmed with what arrived."""
