"""The argument FILE of commands: a path on a disk, or an object of a bucket, `s3://bucket/key`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from hsparse.cli.environment import CLIENT_SETTINGS, client_default
from hsparse.errors import BadRequest

SCHEME = "s3://"
DEADLINE = 600.0
"""Seconds for one request to the store, with its retries: a part of a file may be large."""


@dataclass(frozen=True, slots=True)
class S3Url:
    """The object `key` of a bucket."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> S3Url:
        """Parse a URL; `BadRequest` if it names no object."""
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not bucket or not key:
            raise BadRequest(f"{url} names no object; it should be like s3://bucket/path/file.h5.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"


def add_s3_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the S3 service of FILE."""
    for name, metavar, text in (
        ("endpoint", "URL", "URL of the S3 service of FILE, when it is not AWS"),
        ("region", "REGION", "region of the bucket of FILE"),
    ):
        parser.add_argument(
            f"--s3-{name}",
            default=client_default(f"s3_{name}"),
            metavar=metavar,
            help=f"{text} [{CLIENT_SETTINGS[f's3_{name}'].env_var}]",
        )


def check_target(path: Path, *, replace: bool) -> None:
    """Raise `BadRequest` if a file exists that may not be replaced, for a directory, and without a parent directory."""
    if path.is_dir():
        raise BadRequest(f"{path} is a directory: name a file in it.")
    if path.exists() and not replace:
        raise BadRequest(f"{path} exists; add --force to replace it.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {path.absolute().parent} to write to.")
