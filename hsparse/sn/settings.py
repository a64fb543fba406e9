"""What a service node can be told."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Limits of a service node, in bytes where a size is meant.

    `request_memory` bounds the bodies of all requests in flight, `answer_memory` the parts of answers that
    are being made. `single_user` is the name every request acts as when there is no password file; None asks for
    credentials.
    """

    max_request_size: int = 100 * MIB
    page_size: int = 16 * MIB
    min_chunk_size: int = 1 * MIB
    max_chunk_size: int = 4 * MIB
    request_memory: int = 256 * MIB
    answer_memory: int = 256 * MIB
    single_user: str | None = "admin"
    bucket: str = "hsparse"
