"""What clients learn about the server with a domain: limits, compressors and version."""

from __future__ import annotations

from typing import Any

from hsparse.sn.settings import ServiceSettings

HSDS_VERSION = "1.0.2"
"""The version of HSDS whose API this is; clients gate features on it."""
COMPRESSORS = ("blosclz", "lz4", "lz4hc", "gzip", "zstd", "deflate")


def server_facts(settings: ServiceSettings) -> dict[str, Any]:
    """Return the keys that a domain's answers have beside its record's."""
    return {
        "limits": {
            "min_chunk_size": settings.min_chunk_size,
            "max_chunk_size": settings.max_chunk_size,
            "max_request_size": settings.max_request_size,
        },
        "compressors": list(COMPRESSORS),
        "version": HSDS_VERSION,
    }
