"""The workloads against HSDS, TileDB and a bare handler: `python -m benchmarks --help`."""
