"""URLs of objects in buckets, and files that commands are to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.cli.file_arguments import S3Url, check_target
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


def test_what_may_be_made(tmp_path: Path) -> None:
    there = tmp_path / "there"
    check_target(there, replace=False)
    there.touch()
    check_target(there, replace=True)
    with pytest.raises(BadRequest, match="there exists; add --force"):
        check_target(there, replace=False)
    with pytest.raises(BadRequest, match="is a directory"):
        check_target(tmp_path, replace=True)
    with pytest.raises(BadRequest, match=r"There is no directory .*none to write to"):
        check_target(tmp_path / "none" / "file", replace=True)
