"""The one error that is no failure: a check that this machine cannot run."""

from __future__ import annotations


class NotHere(Exception):
    """This machine lacks something that the check needs; the text says what."""
