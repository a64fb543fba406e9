"""Names of buckets: a bucket is an S3 bucket, or a directory by its name."""

from __future__ import annotations

import re

from hsparse.errors import BadRequest

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def check_bucket_name(name: str) -> str:
    """Return a bucket's name; `BadRequest` for what no bucket can be called."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise BadRequest(f"{name[:80]!r} is not a bucket's name: it has letters, digits, '_', '.' and '-'.")
    return name
