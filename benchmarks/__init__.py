"""Benchmarks against HSDS, TileDB, single-cell libraries and a bare handler; see `python -m benchmarks --help`."""
