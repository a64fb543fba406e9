"""The two layouts of a domain's file: for any HDF5 library, or with structured chunks as they are."""

from __future__ import annotations

from enum import StrEnum


class FileLayout(StrEnum):
    """How sparse datasets are written; all else is the same, and read by HDF5 1.8 and later."""

    STOCK = "stock"
    """As chunked datasets with a fill value, each with a dataset of booleans that says what is defined."""
    STRUCTURED = "structured"
    """As their structured chunks, which the library's prototype reads and others refuse, dataset by dataset."""
