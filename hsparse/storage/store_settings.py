"""Settings of a store: its directory or buckets, and how puts are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hsparse.setting import MIB, setting


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The directory or the buckets that store all data, and how puts are made.

    If `root` is set, `bucket` names directories beside it that are served as further buckets.
    """

    GROUP: ClassVar[str] = "Storage"

    root: Path | None = setting(None, "directory of the store (default: ./hsparse-data)")
    bucket: tuple[str, ...] = setting(
        (),
        "bucket of the store, instead of a directory: NAME of S3, az://CONTAINER, gs://NAME; several may be given, "
        "the first is the default",
    )
    s3_endpoint: str | None = setting(None, "URL of the S3 service, when it is not AWS")
    s3_region: str | None = setting(None, "region of the bucket")
    unsigned: bool = setting(False, "send requests without keys, for public buckets")
    requester_pays: bool = setting(
        False, "agree to pay for the requests to the bucket, if its owner requires that"
    )
    read_only: bool = setting(
        False, "write and lock nothing, and refuse changes; other servers may write to the store meanwhile"
    )
    single_writer: bool = setting(
        False, "declare that nothing else writes to the store, for one that ignores conditional puts"
    )
    fsync: bool = setting(True, "wait for the disk before answering a write (directories only)")
    reserve_size: int = setting(
        256 * MIB,
        "free space that puts leave on the file system, at most a twentieth of it (directories only); 0: none",
        ge=0,
        is_size=True,
    )
    put_log: bool = setting(
        True, "put small objects through a write-ahead log, in a separate process (directories only)"
    )
