"""The table of attacks, which is printed after those of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attack.row import Row


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Rows of the table that is printed at the end."""
    found: list[Row] = []
    yield found
    print("\n| attack | answers | 5xx | p99 of others | worst | unanswered | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(*found, sep="\n")
