"""Settings of a service node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from hsparse.setting import MIB, setting


class CompressionPolicy(StrEnum):
    """Which answers are compressed for clients that accept it."""

    NONE = "none"
    JSON = "json"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Limits and choices of a service node; sizes are in bytes.

    `request_memory` bounds the bodies of all requests in flight, `answer_memory` the parts of answers that
    are being made. `cors_origins` are the origins whose pages may ask, `*` for any, but not
    without users; `allowed_hosts` see `hsparse.sn.policies.guards`. A user may send `rate_limit`
    requests a second (0: any number), and `rate_burst` at once (0: those of ten seconds).
    Files of jobs must be below one of `job_places`; at most `jobs_at_once` jobs run and `jobs_queued` wait,
    `jobs_of_user` of one user; each has `job_memory` bytes and `job_time` seconds.

    At most `requests_at_once` requests are worked on, and an answer must begin in `request_timeout` seconds
    (0: any time) where the client names no deadline. What changes nothing is given up after `max_read_time`. The
    paths in a request may lead through `max_path_steps` links in all, and a query through `max_query_chunks` chunks
    that are computed, or whose fill values it orders, not stored; a write may change `max_write_size` bytes. The
    domains below a folder `/home/NAME` may take `home_quota` bytes in the store, unless an admin has set something
    else.

    Seven fields are not configurable here. `single_user` is the name every request acts as when authentication is
    off; None requires credentials. `bucket` is the name of the store as reported to clients, `other_buckets`
    are those that requests may name. `directory` is the path of the first if that is a directory, which maps tell
    clients on this machine. One that is `read_only` makes no home folders and keeps no summaries.
    """

    GROUP: ClassVar[str] = "Memory and limits"

    cors_origins: tuple[str, ...] = setting(
        ("*",),
        "origins whose pages may ask from a browser, comma-separated; *: any, if the server has users; none: no page",
        group="Answers",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "names besides localhost by which a server without users is asked, comma-separated",
        group="Answers",
    )
    compress: CompressionPolicy = setting(
        CompressionPolicy.JSON,
        "which answers to compress for clients that accept it: json, all or none",
        group="Answers",
    )
    rate_limit: float = setting(0.0, "requests a second that a user may send; 0: any number", ge=0, le=1e6)
    rate_burst: int = setting(
        0, "requests that a user may send at once; 0: those of ten seconds", ge=0, le=10**6
    )
    requests_at_once: int = setting(
        64, "requests worked on at a time; twice as many may be there", ge=1, le=100_000
    )
    request_timeout: float = setting(
        0.0, "seconds in which an answer must begin if the client names none; 0: any time", ge=0, le=86400
    )
    max_read_time: float = setting(
        600.0,
        "seconds in which the answer to a request that changes nothing must begin, at most; 0: any time",
        ge=0,
    )
    max_path_steps: int = setting(
        1_000_000, "links that all paths of a request may lead through", ge=1000, le=10**9
    )
    max_query_chunks: int = setting(
        1 << 20,
        "chunks of computed values that a query may look through; ordered by value, also those of fill values",
        ge=1,
        le=10**12,
    )
    max_request_size: int = setting(100 * MIB, "largest body of a request", ge=MIB, is_size=True)
    max_write_size: int = setting(
        32 * 1024 * MIB,
        "most bytes of values, and of the dense chunks that they are in, that one write may change",
        ge=MIB,
        is_size=True,
    )
    home_quota: int = setting(
        0,
        "bytes that all domains in a home folder may take; 0: any number",
        ge=0,
        is_size=True,
    )
    page_size: int = setting(
        16 * MIB, "how much of a large answer is in memory at a time", ge=64 * 1024, is_size=True
    )
    request_memory: int = setting(
        256 * MIB, "memory for the bodies of requests in flight", ge=MIB, is_size=True
    )
    answer_memory: int = setting(
        256 * MIB, "memory for the parts of answers being made", ge=MIB, is_size=True
    )
    job_places: tuple[str, ...] = setting(
        (),
        "where jobs may read and write, comma-separated: s3://bucket/prefix/, file:///directory/",
        group="Jobs",
    )
    jobs_at_once: int = setting(1, "jobs that a service node runs at a time", group="Jobs", ge=1, le=64)
    jobs_queued: int = setting(16, "jobs that may wait for a service node", group="Jobs", ge=0, le=1000)
    jobs_of_user: int = setting(
        8, "jobs of one user that may wait or run on a service node", group="Jobs", ge=1, le=1000
    )
    job_memory: int = setting(
        16 * 1024 * MIB, "address space of a job's process; 0: any", group="Jobs", ge=0, is_size=True
    )
    job_time: float = setting(86400.0, "seconds that a job may run; 0: any time", group="Jobs", ge=0)
    min_chunk_size: int = 1 * MIB
    max_chunk_size: int = 4 * MIB
    single_user: str | None = "admin"
    bucket: str = "hsparse"
    other_buckets: tuple[str, ...] = ()
    directory: str = ""
    read_only: bool = False
