"""Objects of buckets as commands name them, `s3://bucket/key`, and the flags that say which service has them.

The file that a command is to make.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from hsparse.errors import BadRequest

SCHEME = "s3://"
DEADLINE = 600.0
"""Seconds for one request to the store, with all its retries: a part of a file is of many bytes."""


@dataclass(frozen=True, slots=True)
class S3Url:
    """The object `key` of a bucket."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> S3Url:
        """Return what a URL names; `BadRequest` where that is no object."""
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not bucket or not key:
            raise BadRequest(f"{url} names no object; it should be like s3://bucket/path/file.h5.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"


def add_s3_flags(parser: argparse.ArgumentParser, endpoint: str | None, region: str | None) -> None:
    """Add the flags of the service that has FILE, with their defaults."""
    parser.add_argument(
        "--s3-endpoint",
        default=endpoint,
        metavar="URL",
        help="URL of the S3 service of FILE, when it is not AWS (default: $HSPARSE_S3_ENDPOINT)",
    )
    parser.add_argument(
        "--s3-region",
        default=region,
        metavar="REGION",
        help="region of the bucket of FILE (default: $HSPARSE_S3_REGION)",
    )


def check_target(path: Path, *, replace: bool) -> None:
    """Raise `BadRequest` where there is one that may not be replaced, a directory, or no directory for it."""
    if path.is_dir():
        raise BadRequest(f"{path} is a directory: name a file in it.")
    if path.exists() and not replace:
        raise BadRequest(f"{path} exists; add --force to replace it.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {path.absolute().parent} to write to.")
