"""The allocator's setting must never keep a server from starting."""

from __future__ import annotations

import ctypes

import pytest

from hsparse.cli.allocator import share_arenas


def test_it_sets_the_number_of_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            calls.append((parameter, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    share_arenas()
    assert calls == [(-8, 2)]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    share_arenas()
