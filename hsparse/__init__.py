"""Sparse HDF5 over HTTP."""

__version__ = "0.1.0"
