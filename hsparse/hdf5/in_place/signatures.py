"""Identify files by their first bytes: HDF5 files, and the formats that are often mistaken for HDF5.

HDF5's signature is at byte 0 or, after a user block, at 512, 1024, 2048 and so on (H5.format.html, II.A).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hsparse.bounded_cache import BoundedCache
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.superblock import FIRST_USER_BLOCK, SIGNATURE

SIGNATURE_BYTES = 64
"""Bytes at the start of a file that are compared with `OTHERS`."""
HTML = "a web page (HTML), perhaps of a sign-in", "download the file itself"
OTHERS: tuple[tuple[bytes, tuple[str, str]], ...] = (
    (b"CDF\x01", ("a netCDF-3 file", "convert it by nccopy -k nc4")),
    (b"CDF\x02", ("a netCDF-3 file", "convert it by nccopy -k nc4")),
    (b"CDF\x05", ("a netCDF-3 file (CDF-5)", "convert it by nccopy -k nc4")),
    (b"\x0e\x03\x13\x01", ("an HDF4 file", "convert it by h4toh5")),
    (b"version https://git-lfs.github.com/", ("a Git LFS pointer", "fetch the file by git lfs pull")),
    (b"/annex/objects/", ("a git-annex pointer", "fetch the file by git annex get")),
    (b"MATLAB 5.0 MAT-file", ("a MATLAB 5 file", "save it by save -v7.3")),
    (b"PK\x03\x04", ("a ZIP archive", "unpack it")),
    (b"\x1f\x8b", ("a gzip archive", "unpack it by gunzip")),
    (b"\x28\xb5\x2f\xfd", ("a zstd archive", "unpack it by unzstd")),
    (b"<!doctype html", HTML),
    (b"<html", HTML),
    (b"<?xml", ("an XML document", "download the file itself")),
)
"""Formats that are mistaken for HDF5: their first bytes (text in lower case), their description, and the remedy."""
Read = Callable[[tuple[ByteRange, ...]], Sequence[bytes]]
MOST_SIGNATURES = 16 * 1024 * 1024
NO_SIGNATURE = (
    "not an HDF5 file",
    "it has no signature at byte 0, 512, 1024 and so on; replace it by an intact file",
)


def what_is(size: int, read: Read) -> str:
    """Return a phrase: what a file of `size` bytes is instead of HDF5, and the remedy; return "" for an HDF5 file."""
    if not size:
        return "is empty, not an HDF5 file: write it again"
    (begin,) = read((ByteRange(0, min(SIGNATURE_BYTES, size)),))
    if bytes(begin).startswith(SIGNATURE):
        return ""
    for start, (what, remedy) in OTHERS:
        if bytes(begin).startswith(start) or bytes(begin).lstrip().lower().startswith(start):
            return f"is {what}, not HDF5: {remedy}"
    places = [FIRST_USER_BLOCK]
    while 2 * places[-1] + len(SIGNATURE) <= size:
        places.append(2 * places[-1])
    found = read(tuple(ByteRange(one, len(SIGNATURE)) for one in places if one + len(SIGNATURE) <= size))
    if any(bytes(one) == SIGNATURE for one in found):
        return ""
    return f"is {NO_SIGNATURE[0]}: {NO_SIGNATURE[1]}"


class Signatures:
    """A thread-safe cache of `what_is` for the files of a place, by path and etag."""

    def __init__(self) -> None:
        self._known: BoundedCache[str, str] = BoundedCache(MOST_SIGNATURES)

    def what_is(self, path: str, etag: str, size: int, read: Read) -> str:
        """Return the result of the function `what_is` for a file; `read`, which may raise, is not called if cached."""
        key = f"{path}\0{etag}"
        known = self._known.get(key)
        if known is None:
            known = what_is(size, read)
            self._known.keep(key, known, 2 * len(key) + len(known))
        return known
