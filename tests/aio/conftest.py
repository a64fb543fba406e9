"""Addresses of new domains of an embedded server."""

from __future__ import annotations

import pytest

from tests.client.conftest import NUMBERS


@pytest.fixture
def address(embedded_url: str) -> str:
    return f"{embedded_url}/aio-{next(NUMBERS)}.h5"
