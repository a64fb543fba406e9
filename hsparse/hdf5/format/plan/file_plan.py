"""A file that is laid out before it has bytes: pieces with sizes and addresses.

The bytes of a piece are generated on request, so that a file can be served by ranges without being stored, and its
data can come from elsewhere.

The form in which a domain becomes a file: its layout, and the options of that layout.

The user block of a file, bytes before the superblock that HDF5 leaves to others: MATLAB's head, a script.

It is a creation property of a domain's root group: `{"size": 512, "value_base64": ...}`, without the zeros at its end.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.format.file_fields import AddressOf, Key
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding, declared_encoding
from hsparse.hdf5.format.superblock import FIRST_USER_BLOCK, SIZE_2, encode_superblock

ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class FilePiece:
    """`size` bytes of a file; `make` returns them, or is None for a dataset's data, which the caller provides."""

    key: Key
    size: int
    make: Callable[[AddressOf], bytes] | None = None


class FilePlan:
    """A file's pieces in their order, after a user block the superblock first; between them up to 7 zeros.

    Addresses count from `base`, the end of the user block; `starts` are places in the file.
    """

    def __init__(
        self, pieces: Iterable[FilePiece], root: Key, version: int = 2, user_block: bytes = b""
    ) -> None:
        self.base = len(user_block)
        before = [FilePiece(("user block",), self.base, lambda _: user_block)] if user_block else []
        superblock = FilePiece(("superblock",), SIZE_2, self._superblock)
        self.pieces: list[FilePiece] = [*before, superblock, *pieces]
        self.starts: list[int] = []
        self._root, self._version = root, version
        end = 0
        for piece in self.pieces:
            end += -end % ALIGNMENT
            self.starts.append(end)
            end += piece.size
        self.size = end
        pairs = zip(self.pieces, self.starts, strict=True)
        self._addresses = {piece.key: start - self.base for piece, start in pairs}
        if len(self._addresses) < len(self.pieces):
            raise BadRequest("Two pieces of a file have the same key.")

    def address_of(self, key: Key) -> int:
        """Return a piece's address; `BadRequest` where there is none of that key."""
        address = self._addresses.get(key)
        if address is None:
            raise BadRequest(f"The file has no {key!r}, though something leads there.")
        return address

    def pieces_in(self, start: int, stop: int) -> Iterator[tuple[int, FilePiece]]:
        """Yield address and piece of all that has bytes from `start` to before `stop`, in order."""
        number = max(0, bisect_right(self.starts, start) - 1)
        while number < len(self.pieces) and self.starts[number] < stop:
            if self.starts[number] + self.pieces[number].size > start:
                yield self.starts[number], self.pieces[number]
            number += 1

    def bytes_of(self, piece: FilePiece) -> bytes:
        """Return a piece's bytes; `BadRequest` where the caller provides them."""
        if piece.make is None:
            raise BadRequest(f"The bytes of {piece.key!r} are not in the plan.")
        data = piece.make(self.address_of)
        if len(data) != piece.size:
            raise AssertionError(f"{piece.key!r} has {len(data)} bytes, {piece.size} were planned.")
        return data

    def read(self, start: int, stop: int) -> bytes:
        """Return the file's bytes from `start` to before `stop`, where all of them are in the plan."""
        result = bytearray(max(0, min(stop, self.size) - start))
        for address, piece in self.pieces_in(start, stop):
            data = self.bytes_of(piece)
            low, high = max(start, address), min(stop, address + piece.size)
            result[low - start : high - start] = data[low - address : high - address]
        return bytes(result)

    def _superblock(self, address_of: AddressOf) -> bytes:
        return encode_superblock(address_of(self._root), self.size, self._version, self.base)


class FileLayout(StrEnum):
    """How sparse datasets are written; all else is the same, and read by HDF5 1.8 and later."""

    AUTO = "auto"
    """As matrices those whose attributes declare one, as an import of AnnData leaves them; others as in `STOCK`."""
    STOCK = "stock"
    """As chunked datasets with a fill value, each with a dataset of booleans: whether an element is defined."""
    STRUCTURED = "structured"
    """As their structured chunks, which the library's prototype reads and others refuse, dataset by dataset."""


class VirtualForm(StrEnum):
    """What virtual datasets become.

    By default dense ones with sources beside their domain stay, as HDF5's own, and all others are copied: HDF5 has no
    sparse ones, and where it does not find a file it reads fill values.
    """

    COPIED = "copied"
    """Datasets with the values of their sources."""
    KEPT = "kept"
    """HDF5's own, all that are dense."""
    MAPPED = "mapped"
    """Mappings, also those of sparse ones, for an import to hsparse: HDF5 has none of these."""


EXPORTED = (VirtualForm.COPIED, VirtualForm.KEPT)
"""What an export offers: mappings alone are for copies."""
Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True, slots=True)
class FileForm:
    """A layout; the `revision` of its structured chunks; what all sparse `matrices` become in the stock layout.

    `virtual` is what virtual datasets become.

    `BadRequest` for parameters that the layout does not have.
    """

    layout: FileLayout = FileLayout.STOCK
    revision: FormatRevision = NEWEST_REVISION
    matrices: MatrixEncoding | None = None
    virtual: VirtualForm | None = None

    def __post_init__(self) -> None:
        if self.revision is not NEWEST_REVISION and self.layout is not FileLayout.STRUCTURED:
            raise BadRequest(
                "revision says how structured chunks are written: it goes with layout=structured."
            )
        if self.matrices is not None and self.layout is not FileLayout.STOCK:
            raise BadRequest("matrices are groups in layout=stock: leave one of the two out.")
        if self.virtual is VirtualForm.MAPPED and self.layout is not FileLayout.STRUCTURED:
            raise BadRequest("virtual=mapped is for copies in hsparse: it goes with layout=structured.")

    @classmethod
    def parse(
        cls,
        layout: str | None = None,
        revision: str | None = None,
        matrices: str | None = None,
        virtual: str | None = None,
    ) -> Self:
        """Make it from its names, each None or empty for the default; `BadRequest` for a name that is none.

        The default layout is `AUTO`, or `STOCK` where all matrices are to have one encoding.
        """
        encoding = _one_of("matrices", matrices, MatrixEncoding)
        return cls(
            _one_of("layout", layout, FileLayout) or (FileLayout.STOCK if encoding else FileLayout.AUTO),
            _one_of("revision", revision, FormatRevision) or NEWEST_REVISION,
            encoding,
            _one_of("virtual", virtual, VirtualForm),
        )

    def copies(self, layout: dict[str, Any]) -> bool:
        """Say whether a virtual dataset of this layout has its values in the file."""
        if self.virtual in (VirtualForm.COPIED, VirtualForm.MAPPED):
            return self.virtual is VirtualForm.COPIED
        is_far = any(one["file"].startswith("/") or "://" in one["file"] for one in layout["mappings"])
        return bool(layout.get("flags")) or (is_far and self.virtual is None)

    @property
    def is_structured(self) -> bool:
        return self.layout is FileLayout.STRUCTURED

    def encoding(self, record: dict[str, Any]) -> MatrixEncoding | None:
        """Return the encoding that a dataset has in the file, None for one that stays a dataset."""
        found = declared_encoding(record) if self.layout is FileLayout.AUTO else self.matrices
        return found if found is not None and found.fits(record) else None

    @property
    def params(self) -> dict[str, str]:
        """The parameters of a request for such a file, those with their default values left out but the layout."""
        found = {"layout": self.layout.value}
        if self.revision is not NEWEST_REVISION:
            found["revision"] = self.revision.value
        if self.matrices is not None:
            found["matrices"] = self.matrices.value
        if self.virtual is not None:
            found["virtual"] = self.virtual.value
        return found


STOCK, STRUCTURED, AUTO = FileForm(), FileForm(FileLayout.STRUCTURED), FileForm(FileLayout.AUTO)


def _one_of(name: str, given: str | None, choices: type[Choice]) -> Choice | None:
    if not given:
        return None
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise BadRequest(f"{name} must be one of {names}, not {given[:40]!r}.") from None


USER_BLOCK = "userBlock"
MAX_CONTENT = 256 * 1024
"""The most bytes of a user block up to its last one that is not zero: they are in a record."""
MAX_SIZE = 1 << 26
Json = dict[str, Any]


def user_block_json(data: bytes) -> Json | None:
    """Return a user block as a creation property, None for one that is too long."""
    content = data.rstrip(b"\0")
    if len(content) > MAX_CONTENT or len(data) > MAX_SIZE:
        return None
    return {"size": len(data), "value_base64": base64.b64encode(content).decode()}


def user_block_of(root: Json) -> bytes:
    """Return the user block of a domain's file by the record of its root group; `BadRequest` for a wrong property."""
    found = (root.get("creationProperties") or {}).get(USER_BLOCK)
    if found is None:
        return b""
    try:
        size, content = found["size"], base64.b64decode(found["value_base64"], validate=True)
    except (TypeError, KeyError, binascii.Error, ValueError):
        size, content = 0, b""
    is_power = isinstance(size, int) and FIRST_USER_BLOCK <= size <= MAX_SIZE and not size & (size - 1)
    if not is_power or len(content) > size:
        raise BadRequest(
            f"The creation property {USER_BLOCK} must have a size, a power of two from {FIRST_USER_BLOCK} to "
            f"{MAX_SIZE}, and value_base64 of no more bytes."
        )
    return bytes(content.ljust(size, b"\0"))
