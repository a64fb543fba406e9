"""A member that ends, or is refused, keeps the error that says why: once for a node, not for each request."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_cycles() -> None:
    """Look for no cycles here."""
