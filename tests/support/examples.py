"""How many examples a state machine tries: each is a whole history, so that profiles scale its own number."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["FUZZING", "histories"]

FUZZING = settings.default is not None and settings.default.max_examples > 1_000
"""`make fuzz`: the profile of `tests/conftest.py` that tries many examples."""
_FUZZED = 25
"""In `make fuzz`, times as many."""


def histories(usual: int) -> int:
    """So many in the suite; `make fuzz` tries 25 times as many, `quick` at most what its profile says."""
    if FUZZING:
        return _FUZZED * usual
    assert settings.default is not None
    return min(usual, settings.default.max_examples)
