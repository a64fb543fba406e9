"""The plan of a file, and user blocks.

A `FilePlan` is a list of pieces with sizes and addresses. The bytes of a piece are generated on request, so a server
can answer range requests for a file that is not stored. The caller provides the bytes of datasets' data.

A user block, the bytes before the superblock, is for applications: for example MATLAB's header or a script. The root
group's creation properties contain it without its final zeros: `{"size": 512, "value_base64": ...}`.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest
from hsparse.hdf5.format.file_fields import AddressOf, Key
from hsparse.hdf5.format.plan.file_form import VirtualForm
from hsparse.hdf5.format.superblock import FIRST_USER_BLOCK, SIZE_2, encode_superblock

ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A piece of `size` bytes. `make` returns the bytes, or is None for a dataset's data, which the caller provides."""

    key: Key
    size: int
    make: Callable[[AddressOf], bytes] | None = None


class FilePlan:
    """The pieces of a file in order: user block if any, superblock, then `pieces`. All pieces are aligned to 8 bytes.

    Addresses are relative to `base`, the end of the user block. `starts` are the offsets of the pieces from the file's
    first byte.
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
        """Return the address of the piece with this key; raises `BadRequest` if the file has no such piece."""
        address = self._addresses.get(key)
        if address is None:
            raise BadRequest(f"A structure of the file refers to {key!r}, which is not in the file.")
        return address

    def pieces_in(self, start: int, stop: int) -> Iterator[tuple[int, FilePiece]]:
        """Yield (start in the file, piece) for each piece that overlaps the bytes `start` to `stop` (exclusive)."""
        number = max(0, bisect_right(self.starts, start) - 1)
        while number < len(self.pieces) and self.starts[number] < stop:
            if self.starts[number] + self.pieces[number].size > start:
                yield self.starts[number], self.pieces[number]
            number += 1

    def bytes_of(self, piece: FilePiece) -> bytes:
        """Return a piece's bytes; raises `BadRequest` for a piece whose bytes the caller provides."""
        if piece.make is None:
            raise BadRequest(f"The bytes of {piece.key!r} are not in the plan.")
        data = piece.make(self.address_of)
        if len(data) != piece.size:
            raise AssertionError(f"{piece.key!r} has {len(data)} bytes, {piece.size} were planned.")
        return data

    def read(self, start: int, stop: int) -> bytes:
        """Return the file's bytes from `start` to `stop` (exclusive).

        Raises `BadRequest` if the caller must provide some of these bytes.
        """
        result = bytearray(max(0, min(stop, self.size) - start))
        for address, piece in self.pieces_in(start, stop):
            data = self.bytes_of(piece)
            low, high = max(start, address), min(stop, address + piece.size)
            result[low - start : high - start] = data[low - address : high - address]
        return bytes(result)

    def _superblock(self, address_of: AddressOf) -> bytes:
        return encode_superblock(address_of(self._root), self.size, self._version, self.base)


EXPORTED = (VirtualForm.COPIED, VirtualForm.KEPT)
"""The forms of virtual datasets that exports offer. The form `MAPPED` is only for copies to hsparse."""


USER_BLOCK = "userBlock"
MAX_CONTENT = 256 * 1024
"""The maximum bytes of a user block without its final zeros, because the root group's record contains this content."""
MAX_SIZE = 1 << 26
Json = dict[str, Any]


def user_block_json(data: bytes) -> Json | None:
    """Return a user block as a creation property, or None if the block is too large."""
    content = data.rstrip(b"\0")
    if len(content) > MAX_CONTENT or len(data) > MAX_SIZE:
        return None
    return {"size": len(data), "value_base64": base64.b64encode(content).decode()}


def user_block_of(root: Json) -> bytes:
    """Return the user block from a root group's creation properties; raises `BadRequest` if it is invalid."""
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
            f"{MAX_SIZE}, and a value_base64 of at most size bytes."
        )
    return bytes(content.ljust(size, b"\0"))
