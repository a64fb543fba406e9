"""Pipelines to test, as `parse_filters` makes them, and the same ones for h5py."""

from __future__ import annotations

from typing import Any

import hdf5plugin

from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters

DEFLATE: dict[str, Any] = {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 5, "name": "deflate"}


def user(id: int, *parameters: int) -> dict[str, Any]:
    return {"class": "H5Z_FILTER_USER", "id": id, "parameters": list(parameters)}


CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "deflate": ([DEFLATE], {"compression": "gzip", "compression_opts": 5}),
    "deflate-0": ([{**DEFLATE, "level": 0}], {"compression": "gzip", "compression_opts": 0}),
    "shuffle": (["shuffle"], {"shuffle": True}),
    "fletcher32": (["fletcher32"], {"fletcher32": True}),
    "lzf": (["lzf"], {"compression": "lzf"}),
    "shuffle-deflate-fletcher32": (
        ["shuffle", DEFLATE, "fletcher32"],
        {"compression": "gzip", "compression_opts": 5, "shuffle": True, "fletcher32": True},
    ),
    "blosc-lz4-shuffle": (
        [user(32001, 0, 0, 0, 0, 5, 1, 1)],
        {"compression": hdf5plugin.Blosc("lz4", 5, 1)},
    ),
    "blosc-zstd-bitshuffle": (
        [user(32001, 0, 0, 0, 0, 7, 2, 5)],
        {"compression": hdf5plugin.Blosc("zstd", 7, 2)},
    ),
    "blosclz": (
        [user(32001, 0, 0, 0, 0, 9, 0, 0)],
        {"compression": hdf5plugin.Blosc("blosclz", 9, 0)},
    ),
    "lz4hc": (["lz4hc"], {"compression": hdf5plugin.Blosc("lz4hc", 5, 1)}),
    "lz4": (["lz4"], {"compression": hdf5plugin.LZ4()}),
    "lz4-blocks": ([user(32004, 64)], {"compression": hdf5plugin.LZ4(64)}),
    "bitshuffle": (["bitshuffle"], {"compression": 32008}),
    "bitshuffle-lz4": ([user(32008, 0, 2)], {"compression": hdf5plugin.Bitshuffle(cname="lz4")}),
    "bitshuffle-lz4-blocks": (
        [user(32008, 16, 2)],
        {"compression": hdf5plugin.Bitshuffle(16, cname="lz4")},
    ),
    "bitshuffle-zstd": (
        [user(32008, 64, 3, 5)],
        {"compression": hdf5plugin.Bitshuffle(64, cname="zstd", clevel=5)},
    ),
    "zstd": ([{"class": "H5Z_FILTER_ZSTD", "level": 7}], {"compression": hdf5plugin.Zstd(7)}),
    "shuffle-zstd": (["shuffle", user(32015, 3)], {"shuffle": True, "compression": hdf5plugin.Zstd(3)}),
}


def pipeline(name: str, element_size: int, chunk_bytes: int) -> tuple[Filter, ...]:
    """Return a case's pipeline for elements and chunks of so many bytes."""
    return parse_filters(CASES[name][0], element_size, sparse=False, chunk_bytes=chunk_bytes)[0]
