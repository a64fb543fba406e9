"""Copy an HDF5 file with other filters: first metadata, whose size is planned, then data, whose size is unknown.

`export_filtered` writes the copy under a temporary name, and renames it after it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.hdf5.domain_file import PartFile
from hsparse.hdf5.exporter.refiltered_dataset import (
    FilterChoice,
    RefilteredDataset,
    RefilteredSections,
    Target,
    Task,
    refiltered,
)
from hsparse.hdf5.exporter.relocation import DataArea, Relocation
from hsparse.hdf5.format.file_fields import Addressed, Key
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.messages.object_messages import INCREMENTAL
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset, ParsedObject
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan
from hsparse.hdf5.format.plan.planned_object import (
    PlannedAttribute,
    PlannedDataset,
    PlannedDatatype,
    PlannedGroup,
    PlannedLink,
    PlannedObject,
    PlannedTarget,
    plan_file,
)
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.format.superblock import encode_superblock
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects, is_ordered
from hsparse.hdf5.importer.source import InputFile, path_in_errors
from hsparse.hdf5.importer.structured_upload import StructuredData
from hsparse.model.dataspace import dims_of

MAX_THREADS = 8
"""The number of threads that read, filter and write data."""
ROOT = "g-00000000-00000000-0000-000000-000000"
"""The id of the root group during the copy. Ids connect references with objects; files do not contain ids."""
ReportProgress = Callable[[int, int], None]


class RefilteredFile:
    """A planned copy of `source` with the filters of `choice`; raises an error if an object cannot be copied."""

    def __init__(self, source: InputFile, choice: FilterChoice) -> None:
        self._source = source
        self._choice = choice
        self._objects = FileObjects(source, ROOT, matrices=(), copied=True)
        self._user_block = source.read(0, self._objects.file.base)
        self._relocation = Relocation(self._objects)
        self._heap = GlobalHeapPlan()
        self._datasets: dict[Key, RefilteredDataset] = {}
        self._planned = [self._plan_object(one) for one in self._objects.by_address.values()]
        self._root = self._objects.file.root
        self._places: dict[Key, int] = {}
        self._plan = self._plan_all()

    def write(self, descriptor: int, progress: ReportProgress) -> int:
        """Write the copy to an open, empty file; return its size in bytes."""
        base = self._plan.base
        area = DataArea(descriptor, self._plan.size - base, base)
        self._transport(area, progress)
        self._complete(area)
        return base + area.end

    def _plan_all(self) -> FilePlan:
        """Plan the metadata. Its size is the same before and after the data is written; its addresses differ."""
        objects = [
            replace(one, layout=self._datasets[one.key].layout) if isinstance(one, PlannedDataset) else one
            for one in self._planned
        ]
        indexes = (piece for one in self._datasets.values() for piece in one.pieces)
        pieces = [*self._heap.pieces(), *indexes]
        return plan_file(objects, self._root, pieces, user_block=self._user_block)

    def _transport(self, area: DataArea, progress: ReportProgress) -> None:
        """Read, filter and write all data in a pool of threads."""
        target = Target(area, self._relocation, self._address_of, self._places)
        lock, left = Lock(), self._source.size

        def run(task: Task) -> None:
            nonlocal left
            task.run()
            with lock:
                left -= task.done
                progress(self._source.size - left, self._source.size)

        with BoundedPool(MAX_THREADS) as work:
            for dataset in self._datasets.values():
                for task in dataset.tasks(target):
                    work.submit(task.memory, partial(run, task))
            work.finish()
        progress(self._source.size, self._source.size)

    def _complete(self, area: DataArea) -> None:
        """Write the metadata, after the addresses of all data have become known."""
        known, self._plan = self._plan, self._plan_all()
        if known.starts != self._plan.starts:
            raise AssertionError("The metadata has another size than was planned.")
        base = self._plan.base
        for start, piece in zip(self._plan.starts, self._plan.pieces, strict=True):
            if piece.key != ("superblock",):
                area.write(start - base, self._bytes_of(piece))
        area.write(0, encode_superblock(self._address_of(self._root), base + area.end, base=base))

    def _bytes_of(self, piece: FilePiece) -> bytes:
        assert piece.make is not None
        return piece.make(self._address_of)

    def _address_of(self, key: Key) -> int:
        place = self._places.get(key)
        return self._plan.address_of(key) if place is None else place

    def _plan_object(self, one: FileObject) -> PlannedObject:
        with path_in_errors(one.path):
            stored = self._objects.read(one)
            attributes = list(self._attributes(stored))
            ordered = is_ordered(stored)
            if stored.dataset is not None:
                return self._dataset(stored, stored.dataset, attributes, ordered=ordered)
            if stored.type is not None:
                return PlannedDatatype(one.address, stored.type, attributes, ordered)
            links = [
                PlannedLink(
                    link.name,
                    PlannedTarget(link.target.address)
                    if isinstance(link.target, StoredHardLink)
                    else link.target,
                )
                for link in stored.links
            ]
            return PlannedGroup(one.address, links, attributes, ordered)

    def _attributes(self, stored: ParsedObject) -> Iterator[PlannedAttribute]:
        for one in stored.attributes:
            dims, data = dims_of(one.shape), Addressed(b"")
            if dims is not None:
                data = self._relocation.elements(one.type, one.data, dims, self._heap)
            yield PlannedAttribute(one.name, one.type, one.shape, data, one.committed)

    def _dataset(
        self, one: ParsedObject, dataset: ParsedDataset, attributes: list[PlannedAttribute], *, ordered: bool
    ) -> PlannedDataset:
        key: Key = one.header.address
        if isinstance(dataset.layout, RawStructuredLayout):
            found: RefilteredDataset = RefilteredSections(
                key, StructuredData(self._objects, one), self._choice
            )
        else:
            found = refiltered(key, InputData(self._objects, dataset), self._choice)
        self._datasets[key] = found
        fill = replace(dataset.fill, allocation=INCREMENTAL) if found.pieces else dataset.fill
        places: tuple[tuple[int, Key], ...] = ()
        if fill.value:
            value = self._relocation.elements(dataset.type, fill.value, (), self._heap)
            fill, places = replace(fill, value=value.data), value.places
        return PlannedDataset(
            key,
            dataset.type,
            dataset.shape,
            found.layout,
            fill,
            found.pipeline,
            attributes,
            dataset.committed,
            ordered,
            found.messages,
            places,
        )


def export_filtered(
    source: InputFile, choice: FilterChoice, target: Path, progress: ReportProgress, *, replace: bool = False
) -> int:
    """Write a copy of `source` with other filters to `target`; return its size in bytes.

    Until the copy is complete, it is named `<target>.<etag>.filtered.part`. An incomplete copy is deleted after errors.
    Raises the errors of reading, of writing and of `PartFile`.
    """
    with PartFile(target, f"{source.fingerprint}.filtered") as part:
        try:
            part.file.truncate(0)
            size = RefilteredFile(source, choice).write(part.file.fileno(), progress)
            part.finish(replace=replace)
        except BaseException:
            part.path.unlink(missing_ok=True)
            raise
    return size
