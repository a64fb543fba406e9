"""The revisions of structured chunks in HDF5 files: all are read, and one of them is written."""

from __future__ import annotations

from enum import Enum


class FormatRevision(Enum):
    """Where the layout of the bytes comes from."""

    RFC_2023_07 = "rfc-2023-07"
    """RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 17."""
    RFC_2025_10 = "rfc-2025-10"
    """The same RFC, version 28."""
    LIB_2026_09 = "lib-2026-09"
    """What the HDF5 library's prototype writes and reads as of September 2026."""


NEWEST_REVISION = FormatRevision.LIB_2026_09
"""What is written unless another is asked for."""
