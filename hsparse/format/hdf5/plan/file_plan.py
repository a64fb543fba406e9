"""A file that is laid out before it has bytes: pieces with sizes and addresses.

The bytes of a piece are generated on request, so that a file can be served by ranges without being stored, and its
data can come from elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hsparse.errors import BadRequest
from hsparse.format.hdf5.addressed import AddressOf, Key
from hsparse.format.hdf5.superblock import SIZE_2, encode_superblock

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
