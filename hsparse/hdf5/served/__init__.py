"""HDF5 files that are served where they lie: each is a domain that is only read, without import or copy."""
