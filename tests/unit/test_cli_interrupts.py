"""Ctrl-C ends a command that repeats its work, also when the interpreter drops the exception."""

from __future__ import annotations

import signal
import sys

import pytest

from penstock.cli.terminal import until_interrupted


class _InterruptedWhileFreed:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_the_block_and_is_no_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with until_interrupted() as goes_on:
        assert goes_on()
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the block goes on")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_a_finalizer_drops_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    with until_interrupted() as goes_on:
        freed = _InterruptedWhileFreed()
        assert goes_on()
        del freed
        assert dropped == [KeyboardInterrupt] and not goes_on()
