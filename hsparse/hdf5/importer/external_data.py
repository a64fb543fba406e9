"""The data of a dataset in external raw files, as one source: the runs of bytes that the file lists, end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hsparse.errors import Corrupt, NotFound
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.parse.external_files import ExternalFile
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.importer.source import Source
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.model.dataspace import dims_of


class ExternalData(Source):
    """The bytes of a dataset that the file `beside` has in other files. A file that is too short ends in zeros.

    `NotFound` without one of the files, `Corrupt` if they are for fewer bytes than the dataset has.
    """

    def __init__(self, files: SourceFiles, beside: str, dataset: ParsedDataset) -> None:
        self.name = beside
        self.fingerprint = ""
        self.size = prod(dims_of(dataset.shape) or ()) * dataset.type.size
        self._files = files
        self._parts: list[tuple[int, int, int, str]] = []
        """Of each run: where it begins and ends in the data, where in its file, and the place of the file."""
        at = 0
        for one in dataset.external:
            if at < self.size:
                stop = self.size if one.size is None else min(self.size, at + one.size)
                self._parts.append((at, stop, one.offset, self._place(one, beside)))
                at = stop
        if at < self.size:
            raise Corrupt(f"The external files are for {at} bytes; the dataset has {self.size}.")

    def close(self) -> None:
        """Close nothing: the files are closed by `SourceFiles`."""

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        return [b"".join(self._read(one.address, one.address + one.size)) for one in wanted]

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        for begin, end, offset, place in self._parts:
            low, high = max(start, begin), min(stop, end)
            if low >= high:
                continue
            with self._files.use(place) as source:
                first = offset + low - begin
                there = max(0, min(high - low, source.size - first))
                if there:
                    yield source.read(first, there)
                # As libhdf5 (`H5D__efl_read`) reads beyond the end of a file.
                yield bytes(high - low - there)

    def _place(self, one: ExternalFile, beside: str) -> str:
        found = self._files.find(one.name, beside)
        if found is None:
            raise NotFound(f"There is no external file {one.name!r} beside {beside}: put it there.")
        return found
