"""The names of layouts are part of the API."""

from __future__ import annotations

from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.sn.openapi import specification


def test_the_names_are_those_that_clients_are_told() -> None:
    told = specification()["components"]["parameters"]["layout"]["schema"]
    assert told["enum"] == [layout.value for layout in FileLayout]
    assert told["default"] == FileLayout.STOCK.value
