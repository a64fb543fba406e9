from __future__ import annotations

import pytest

from hsparse.cli.s3_url import S3Url
from hsparse.errors import BadRequest


def test_an_object() -> None:
    url = S3Url.parse("s3://bucket/a/b.h5")
    assert (url.bucket, url.key, str(url)) == ("bucket", "a/b.h5", "s3://bucket/a/b.h5")


@pytest.mark.parametrize(
    "url", ["s3://", "s3://bucket", "s3://bucket/", "s3:///a", "http://bucket/a", "a.h5"]
)
def test_what_is_none(url: str) -> None:
    with pytest.raises(BadRequest, match="names no object"):
        S3Url.parse(url)
