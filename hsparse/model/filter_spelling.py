"""Filters as answers and records have them: objects with class, id and name, however they were asked for."""

from __future__ import annotations

from typing import Any

from hsparse.model.filter_json import (
    BITSHUFFLE,
    BLOSC,
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZ4HC,
    LZF,
    NAMES,
    NBIT,
    SCALEOFFSET,
    SHUFFLE,
    ZSTD,
)

USER = "H5Z_FILTER_USER"
SPELLINGS = {
    DEFLATE: ("H5Z_FILTER_DEFLATE", "gzip"),
    SHUFFLE: ("H5Z_FILTER_SHUFFLE", "shuffle"),
    FLETCHER32: ("H5Z_FILTER_FLETCHER32", "fletcher32"),
    NBIT: ("H5Z_FILTER_NBIT", "nbit"),
    SCALEOFFSET: ("H5Z_FILTER_SCALEOFFSET", "scaleoffset"),
    LZF: ("H5Z_FILTER_LZF", "lzf"),
    BLOSC: ("H5Z_FILTER_BLOSC", "blosclz"),
    LZ4: ("H5Z_FILTER_LZ4", "lz4"),
    LZ4HC: ("H5Z_FILTER_LZ4HC", "lz4hc"),
    BITSHUFFLE: ("H5Z_FILTER_BITSHUFFLE", "bitshuffle"),
    ZSTD: ("H5Z_FILTER_ZSTD", "zstd"),
}
"""Class and name of a filter, by its id: clients know a compressor by its name alone."""


def spelled_filters(items: list[Any]) -> list[Any]:
    """Return filters that were asked for by objects, ids or names as objects; what is not known as it is."""
    return [_spelled(item) for item in items]


def _spelled(item: Any) -> Any:
    asked = item if isinstance(item, dict) else {}
    key = asked.get("class", USER) if asked else item
    if asked and key == USER:
        key = asked.get("id", asked.get("name"))
    id = NAMES.get(key) if isinstance(key, str) else key
    if not isinstance(id, int) or id not in SPELLINGS:
        return item
    kind, name = SPELLINGS[id]
    named = item if item == "deflate" else name
    return {"class": kind, "id": id, "name": named} | {k: v for k, v in asked.items() if k != "class"}
