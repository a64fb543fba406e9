"""What requests cost, and how that grows: counted, measured, and simulated. `python -m benchmarks scaling`."""
