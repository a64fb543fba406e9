"""The cost of requests and its growth, counted, measured and simulated: `python -m benchmarks scaling`."""
