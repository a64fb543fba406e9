"""The workloads against HSDS, TileDB, single-cell libraries and a bare handler: `python -m benchmarks --help`."""
