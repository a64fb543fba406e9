"""Names of buckets."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.model.ids import check_bucket_name


@pytest.mark.parametrize("name", ["a", "hsds.test-1_B", "...", "x" * 255])
def test_names(name: str) -> None:
    assert check_bucket_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "s3://a", "x" * 256])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadRequest, match="bucket's name"):
        check_bucket_name(name)
