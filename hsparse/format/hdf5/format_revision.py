"""The revisions in which structured chunks and their metadata are written."""

from __future__ import annotations

from enum import Enum


class FormatRevision(Enum):
    """A revision of the sparse file format; what is read may be of any, what is written is of one.

    The RFC "File Format Changes for Enabling Sparse Storage in HDF5" of July 2023 and of October 2025, and
    what the HDF5 library's prototype wrote in September 2026, the default.
    """

    RFC_2023_07 = "RFC 2023-07"
    RFC_2025_10 = "RFC 2025-10"
    LIB_2026_09 = "library 2026-09"
