"""The ways of reading, and the servers behind them."""

from __future__ import annotations

from tests.client.access_ways import (
    access,
    bucket_server,
    direct_access,
    directory_access,
    directory_server,
    embedded_root,
)

__all__ = [
    "access",
    "bucket_server",
    "direct_access",
    "directory_access",
    "directory_server",
    "embedded_root",
]
