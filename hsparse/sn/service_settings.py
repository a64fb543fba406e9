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
    """Limits and options of a service node; sizes are in bytes, times in seconds.

    `request_memory` bounds the bodies of all requests in flight, `answer_memory` the parts of answers that are
    being made. Browsers may send requests from pages of `cors_origins`; `*` allows every origin if the server has
    users. `allowed_hosts` is described in `hsparse.sn.policies.guards`. A user may send `rate_limit` requests per
    second (0: any number), in bursts of `rate_burst` (0: the requests of ten seconds).

    At most `requests_at_once` requests are worked on. An answer must begin within `request_timeout` (0: any time)
    unless the client names a deadline, and a read's answer within `max_read_time`. All paths of one request may
    follow `max_path_steps` links in total. A query may scan `max_query_chunks` chunks that are not stored: computed
    chunks or, in a query with an order, chunks of the fill value. One write may change `max_write_size` bytes.

    Seven fields are not configurable here. `single_user` is the identity of every request when authentication is
    off; if it is None, requests need credentials. `bucket` is the store's name as reported to clients; requests may
    also name `other_buckets`. `directory` is the path of the store if it is a directory; chunk maps report it to
    clients on this machine. A `read_only` node makes no home folders and stores no summaries.
    """

    GROUP: ClassVar[str] = "Memory and limits"

    cors_origins: tuple[str, ...] = setting(
        ("*",),
        "origins whose pages may send requests, comma-separated; *: any, if the server has users; none: no page",
        group="Answers",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "host names besides localhost to which a server without users answers, comma-separated",
        group="Answers",
    )
    compress: CompressionPolicy = setting(
        CompressionPolicy.JSON,
        "which answers to compress for clients that accept it: json, all or none",
        group="Answers",
    )
    rate_limit: float = setting(0.0, "requests a second that a user may send; 0: any number", ge=0, le=1e6)
    rate_burst: int = setting(
        0, "requests that a user may send at once; 0: as many as in ten seconds", ge=0, le=10**6
    )
    requests_at_once: int = setting(
        64, "requests worked on at a time; twice as many may be there", ge=1, le=100_000
    )
    request_timeout: float = setting(
        0.0, "seconds in which an answer must begin if the client names none; 0: any time", ge=0, le=86400
    )
    max_read_time: float = setting(
        600.0,
        "seconds in which the answer to a request that only reads must begin; 0: any time",
        ge=0,
    )
    max_path_steps: int = setting(
        1_000_000, "links that all paths of a request may lead through", ge=1000, le=10**9
    )
    max_query_chunks: int = setting(
        1 << 20,
        "chunks of computed values that a query may scan; if ordered by value, also chunks of fill values",
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
    page_size: int = setting(
        16 * MIB, "how much of a large answer is in memory at a time", ge=64 * 1024, is_size=True
    )
    request_memory: int = setting(
        256 * MIB, "memory for the bodies of requests in flight", ge=MIB, is_size=True
    )
    answer_memory: int = setting(
        256 * MIB, "memory for the parts of answers being made", ge=MIB, is_size=True
    )
    min_chunk_size: int = 1 * MIB
    max_chunk_size: int = 4 * MIB
    single_user: str | None = "admin"
    bucket: str = "hsparse"
    other_buckets: tuple[str, ...] = ()
    directory: str = ""
    read_only: bool = False
