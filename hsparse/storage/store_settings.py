"""Settings of a store: which one it is, and how it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hsparse.setting import MIB, setting


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The directory or the buckets that hold everything, and how puts are made there.

    With a root, `bucket` names directories beside it, which are served as further buckets.
    """

    GROUP: ClassVar[str] = "Storage"

    root: Path | None = setting(None, "directory to keep everything in (default: ./hsparse-data)")
    bucket: tuple[str, ...] = setting(
        (),
        "bucket to keep everything in, instead of a directory: NAME of S3, az://CONTAINER, gs://NAME; several are "
        "served, the first by default",
    )
    s3_endpoint: str | None = setting(None, "URL of the S3 service, when it is not AWS")
    s3_region: str | None = setting(None, "region of the bucket")
    unsigned: bool = setting(False, "send requests to the bucket without keys, as public ones are read")
    requester_pays: bool = setting(
        False, "agree to pay for the requests to the bucket, where its owner asks for that"
    )
    read_only: bool = setting(
        False, "write nothing and lock nothing, and refuse changes; others may serve and write it meanwhile"
    )
    single_writer: bool = setting(
        False, "declare that nothing else writes the store, if it ignores conditional puts"
    )
    fsync: bool = setting(True, "wait for the disk before answering a write (directories only)")
    reserve_size: int = setting(
        256 * MIB,
        "free space that puts leave on the file system, at most a twentieth of it (directories only); 0: none",
        ge=0,
        is_size=True,
    )
    put_log: bool = setting(
        True, "put small objects through a log, in a process of its own (directories only)"
    )
