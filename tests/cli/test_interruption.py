"""Ctrl-C, wherever it hits."""

from __future__ import annotations

import threading

import pytest

from hsparse.cli.interruption import interruptible


def test_an_interrupt_in_a_locks_own_code() -> None:
    condition = threading.Condition(threading.Lock())

    def interrupted() -> None:
        with interruptible(), condition:
            condition.release()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="unlocked"), interruptible():
        threading.Lock().release()
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise KeyboardInterrupt
