"""What sends the values of one dataset of a file, whatever their form.

Tests: tests/cli/importer/test_defined_upload.py, tests/cli/importer/test_dense_upload.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import TooLarge
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import encode_region, encode_vlen_region
from hsparse.model.element import element_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

LARGEST = 64 * 1024 * 1024
"""The most bytes of values in a request, unless an element has more."""
Advance = Callable[[int], None]
"""Called with a number of bytes of the file that are done."""
Data = TypeVar("Data")


class ValueUpload(Generic[Data]):
    """The values of one dataset; `record` is the server's JSON of the dataset."""

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        path: str,
        record: dict[str, Any],
        data: Data,
        advance: Advance,
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._path = path
        self._record = record
        self._url = f"/datasets/{record['id']}"
        self._data = data
        self._advance = advance

    def _put_elements(self, points: Points, values: Values) -> None:
        """Define elements of a sparse dataset, in halves if they are too many for a request."""
        count = points.size
        if not count:
            return
        try:
            if isinstance(values, VlenArray):
                body = encode_vlen_region(points, values, element_of(self._record["type"]))
            else:
                body = encode_region(points, values)
            if len(body) > LARGEST and count > 1:
                raise TooLarge(f"{count} elements have {len(body)} bytes.")
            self._server.json("PUT", f"{self._url}/value", body, sparse=1)
        except TooLarge:
            if count == 1:
                raise
            for half in (slice(0, count // 2), slice(count // 2, count)):
                self._put_elements(Points(points.extent, points.coordinates[half]), values[half])
