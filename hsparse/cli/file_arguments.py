"""The FILE argument of commands: a local path, or an object of a bucket, `s3://bucket/key`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsparse.cli.environment import CLIENT_SETTINGS, client_default, is_on_by_default
from hsparse.errors import BadRequest

SCHEME = "s3://"
REQUEST_SECONDS = 600.0
"""The deadline of one request to the bucket, with its retries, in seconds; long, as a part of a file may be large."""


@dataclass(frozen=True, slots=True)
class S3Url:
    """The URL of an object in a bucket: the name of the bucket and the key of the object."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> S3Url:
        """Parse a URL like `s3://bucket/key`; raise `BadRequest` if the URL does not name an object."""
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not bucket or not key:
            raise BadRequest(f"{url} does not name an object: write a URL like s3://bucket/path/file.h5.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"


def add_s3_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe the S3 service of the argument FILE, such as `--s3-endpoint`."""
    for name, metavar in (("s3_endpoint", "URL"), ("s3_region", "REGION")):
        one = CLIENT_SETTINGS[name]
        text = f"{one.description} [{one.env_var}]"
        parser.add_argument(one.flag, default=client_default(name), metavar=metavar, help=text)
    for name in ("unsigned", "requester_pays"):
        one, on = CLIENT_SETTINGS[name], is_on_by_default(name)
        text = f"{one.description} [{one.env_var}]"
        parser.add_argument(one.flag, default=on, action=argparse.BooleanOptionalAction, help=text)


def s3_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags of `add_s3_flags` as keyword arguments for `S3Store`."""
    return {
        "endpoint": args.s3_endpoint,
        "region": args.s3_region,
        "unsigned": args.unsigned,
        "requester_pays": args.requester_pays,
        "deadline": REQUEST_SECONDS,
    }


def check_target(path: Path, *, replace: bool) -> None:
    """Raise `BadRequest` if `path` is a directory, has no parent directory or, unless `replace` is set, exists."""
    if path.is_dir():
        raise BadRequest(f"{path} is a directory: name a file in it.")
    if path.exists() and not replace:
        raise BadRequest(f"{path} exists; add --force to replace it.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {path.absolute().parent}: create the directory first.")
