"""What a service node can be told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MIB = 1024 * 1024


class Compress(StrEnum):
    """Which answers are compressed for clients that accept it."""

    NONE = "none"
    JSON = "json"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Limits of a service node, in bytes where a size is meant.

    `request_memory` bounds the bodies of all requests in flight, `answer_memory` the parts of answers that
    are being made. `single_user` is the name every request acts as when nobody can sign in; None asks for
    credentials. `cors_origins` are the origins whose pages may ask, `*` for any. A user may send `rate_limit`
    requests a second (0: any number), and `rate_burst` at once (0: those of ten seconds).
    Files of jobs must be below one of `job_places`; `jobs_at_once` of them run, and `jobs_queued` wait.
    """

    max_request_size: int = 100 * MIB
    page_size: int = 16 * MIB
    min_chunk_size: int = 1 * MIB
    max_chunk_size: int = 4 * MIB
    request_memory: int = 256 * MIB
    answer_memory: int = 256 * MIB
    single_user: str | None = "admin"
    cors_origins: tuple[str, ...] = ("*",)
    compress: Compress = Compress.JSON
    rate_limit: float = 0.0
    rate_burst: int = 0
    job_places: tuple[str, ...] = ()
    jobs_at_once: int = 1
    jobs_queued: int = 16
    bucket: str = "hsparse"
