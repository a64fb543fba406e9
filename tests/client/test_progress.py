"""Progress: a function, a bar on a terminal, or nothing."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from hsparse.client.progress import show_progress
from hsparse.errors import Misconfigured
from hsparse.optional_module import OptionalModule


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeTqdm:
    """What tqdm is asked for here."""

    bars: list[FakeTqdm] = []  # noqa: RUF012

    def __init__(self, total: int, desc: str, **options: Any) -> None:
        self.total, self.desc, self.n = total, desc, 0
        self.bars.append(self)

    def __enter__(self) -> FakeTqdm:
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""

    def update(self, count: int) -> None:
        self.n += count

    tqdm: Any = None


FakeTqdm.tqdm = FakeTqdm


def install(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Make these the only optional modules."""

    def load(self: OptionalModule) -> Any:
        if modules.get(self.module.partition(".")[0]) is None:
            raise Misconfigured(f"{self.module} is not installed")
        return modules[self.module.partition(".")[0]]

    monkeypatch.setattr(OptionalModule, "load", load)


def test_a_function_is_called_with_what_is_done() -> None:
    seen: list[tuple[int, int]] = []
    with show_progress(lambda done, total: seen.append((done, total)), "x", 5) as advance:
        advance(2)
        advance(3)
    assert seen == [(2, 5), (5, 5)]


@pytest.mark.parametrize(
    ("progress", "terminal", "bars"), [(None, True, 1), (None, False, 0), (True, False, 1), (False, True, 0)]
)
def test_a_bar_of_tqdm(
    monkeypatch: pytest.MonkeyPatch, progress: bool | None, terminal: bool, bars: int
) -> None:
    install(monkeypatch, tqdm=FakeTqdm)
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    FakeTqdm.bars.clear()
    with show_progress(progress, "cells.h5ad", 10) as advance:
        advance(4)
        advance(6)
    assert [(bar.n, bar.total, bar.desc) for bar in FakeTqdm.bars] == [(10, 10, "cells.h5ad")] * bars


def test_a_bar_of_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    rich = OptionalModule("rich.progress").load()
    install(monkeypatch, rich=rich)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress(None, "cells.h5ad", 10) as advance:
        advance(10)


def test_no_bar_without_either(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress(None, "x", 1) as advance:
        advance(1)
    with pytest.raises(Misconfigured, match="rich"), show_progress(True, "x", 1):
        raise AssertionError
