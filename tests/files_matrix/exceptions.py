"""What comes out otherwise than it went in, and why: docs/limitations.md prints this list."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """Differences at some exits that are known: `pattern` is searched for in `file: path: what`."""

    exits: tuple[str, ...]
    pattern: str
    reason: str

    def explains(self, exit: str, difference: str) -> bool:
        """Say whether a difference at an exit is one of these."""
        return exit in self.exits and re.search(self.pattern, difference) is not None

    @property
    def row(self) -> str:
        """The row of the list in the docs."""
        return f"| {', '.join(self.exits)} | {self.reason} |"


FILES = ("export", "/files")
NO_CODEC = r"filters: /scaleoffset|filter blosc2: |filter bzip2: |filter nbit: |filter szip: "

KNOWN = (
    Known(
        (*FILES, "client", "h5pyd"),
        rf"h5py: ({NO_CODEC}|filters: /: members)",
        "A dataset with the filter scaleoffset, nbit, szip, bzip2 or blosc2 is left out, and the import names it",
    ),
    Known(
        FILES,
        r"h5py: filters: /fletcher32: filters|h5py: filter (lzf|zstd|lz4): /x: filters",
        "A filter that was optional, or had values that its encoder sets, has the same name and other flags or values",
    ),
    Known(FILES, r"/compact: layout", "A compact dataset is contiguous"),
    Known(
        FILES,
        r"anndata: cells: .*/(data|indices|indptr): (maxshape|filters)",
        "The arrays of an AnnData matrix are made anew: no longer growing, with gzip at level 1",
    ),
    Known(
        FILES,
        r"anndata: cells: .*/(_index|categories|gene): filters",
        "Text of variable length loses its filters, which compress its addresses alone",
    ),
    Known(
        ("client", "h5pyd"),
        r"h5py: dates: /dates",
        "Opaque dates of numpy are bytes, which h5py takes for dates",
    ),
    Known(("client",), r"h5py: extents: /null.*: shape \(\)", "A null dataspace has the shape ()"),
    Known(
        ("h5pyd",),
        r"complex|bit fields|@transposed|/f/block2_values",
        "h5pyd 1.0.0 has no complex numbers and no bit fields, which is how PyTables stores truth values",
    ),
    Known(
        ("h5pyd",),
        r"names that are not ASCII|Array Type base type",
        "h5pyd 1.0.0 refuses names of fields that are not ASCII, and arrays of bit fields",
    ),
    Known(
        ("h5pyd",),
        r"sequences with nothing in them|sequences of sequences",
        "h5pyd 1.0.0 has 0 for a sequence that was never written, and no sequences of sequences",
    ),
    Known(
        ("xarray",),
        r"dimension scales: /data",
        "Labels of dimensions (DIMENSION_LABELS) are no attribute of a variable, as in references; h5netcdf shows them",
    ),
    Known(("h5pyd",), r"h5py: extents: /none: maxshape", "h5pyd 1.0.0 takes a limit of 0 elements for none"),
    Known(
        ("xarray",),
        r"pandas: .*@TITLE: None",
        "An attribute without a value (a null dataspace) is None; h5netcdf has an empty text",
    ),
    Known(
        ("xarray",),
        r"anndata: cells: /(X|obs|var): added",
        "A sparse matrix of AnnData is a variable, and a frame's index a coordinate; in the file both are groups",
    ),
    Known(
        ("kerchunk",),
        rf"{NO_CODEC}|filter bitshuffle: |/view: missing",
        "A dataset that was not imported, is virtual, or whose filter bitshuffle numcodecs has not, has no references",
    ),
    Known(
        ("kerchunk",), r"/a/b/c/again: missing", "A dataset with several paths has references at one of them"
    ),
    Known(
        ("kerchunk",),
        r"anndata: cells: .*/(data|indices|indptr): missing",
        "A sparse matrix of AnnData is one array, of which zarr has the fill value where nothing is stored",
    ),
    Known(
        ("kerchunk",),
        r"(netCDF4|xarray): .*: /(x|string2|model/run/n|model/string2): missing",
        "A dimension without values is no array",
    ),
)

SERVED = (
    Known(
        FILES,
        r"/view: (layout|filters)",
        "A virtual dataset has the values of its sources, chunked and compressed",
    ),
    Known(
        FILES,
        r"newest bounds: /view@hsparse_virtual: added",
        "What a virtual dataset has beside its mappings is in an attribute",
    ),
    Known(
        (*FILES, "client", "h5pyd"),
        r"NeXus: a scan: /entry/events(: members|/counts(\.defined)?: added)",
        "Events of NeXus have their counts beside them, a sparse dataset",
    ),
)
"""What differs of files that are served where they lie, besides."""
