"""The exception that ends a workload without ending the run."""

from __future__ import annotations


class Failed(RuntimeError):
    """A measurement could not be taken; the message gives the reason."""
