"""The end of a file that is written, where data is put in the order in which it comes."""

from __future__ import annotations

import os
from threading import Lock

from hsparse.errors import StoreFailed
from hsparse.format.buffer import Buffer
from hsparse.format.hdf5.plan.file_plan import ALIGNMENT


class DataArea:
    """Space of an open file from `start` on; any number of threads may write."""

    def __init__(self, descriptor: int, start: int) -> None:
        self._descriptor = descriptor
        self._lock = Lock()
        self.end = start

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes that nobody else has."""
        with self._lock:
            address = self.end + -self.end % ALIGNMENT
            self.end = address + size
            return address

    def append(self, data: Buffer) -> int:
        """Write data where there is room, and return its address."""
        address = self.allocate(len(data))
        self.write(address, data)
        return address

    def write(self, address: int, data: Buffer) -> None:
        """Write data; `StoreFailed` where there is no room on the disk."""
        left = memoryview(data)
        try:
            while len(left):
                count = os.pwrite(self._descriptor, left, address)
                left, address = left[count:], address + count
        except OSError as error:
            raise StoreFailed(f"The file cannot be written: {error.strerror}.") from error
