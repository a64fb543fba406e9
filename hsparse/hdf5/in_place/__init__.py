"""Serve HDF5 files in place: each file is a read-only domain, without an import or a copy."""
