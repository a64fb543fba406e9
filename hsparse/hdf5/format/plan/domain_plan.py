"""Plan the HDF5 file of a domain from its records and the list of stored chunks, without the chunks' bytes.

A file begins with headers, links and attributes. Heaps and chunk indexes follow, and then the chunks of each dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hsparse.errors import HsparseError
from hsparse.hdf5.format.file_fields import Addressed, Key, address_to
from hsparse.hdf5.format.lower_bounds import bounds_attributes
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.format.messages.group_messages import StoredExternalLink, StoredSoftLink
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.plan.dataset_plan import plan_dataset, plan_defined_set
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan, user_block_of
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.matrix_plan import CompressedMatrix, MatrixColumn, plan_bands, plan_matrix
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_chunks import ChunkRegion, PlannedChunks
from hsparse.hdf5.format.plan.planned_object import (
    PlannedAttribute,
    PlannedDataset,
    PlannedDatatype,
    PlannedGroup,
    PlannedLink,
    PlannedObject,
    PlannedTarget,
    plan_file,
    plan_layout,
)
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.format.virtual_attribute import layout_attributes
from hsparse.model.attribute import attribute_values
from hsparse.model.dataspace import dims_of, shape_json
from hsparse.model.datatype import parse_type
from hsparse.model.ids import collection_of
from hsparse.model.layout import is_sparse
from hsparse.model.link import HARD, SOFT, external_file

DEFINED = "DEFINED_SET"
"""The attribute of a sparse dataset that refers to the dataset with its defined set."""
DEFINED_SUFFIX = ".defined"
REFERENCE_TYPE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
SCALAR = {"class": "H5S_SCALAR"}
STOCK = FileForm(FileLayout.STOCK)
Json = dict[str, Any]
RecordsById = Mapping[str, Json]


@dataclass(frozen=True, slots=True, eq=False)
class DomainPlan:
    """The plan of a file; `ids` are the ids of the objects in the file.

    `regions` maps a piece's key to the chunks of a dataset. `columns` maps a piece's key to an array of a matrix
    (a sparse dataset that is written as a group of arrays). Compressed arrays are in `regions` and in `columns`.
    """

    file: FilePlan
    regions: Mapping[Key, ChunkRegion]
    ids: frozenset[str]
    columns: Mapping[Key, MatrixColumn] = field(default_factory=dict)

    def key_of(self, name: str) -> Key | None:
        """Return the key of a reference's target, or None if the target is not in the file."""
        return known_key(name, self.ids)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the plan in bytes."""
        planned = sum(400 + piece.size for piece in self.file.pieces if piece.make is not None)
        bands = {id(column.bands): column.bands.nbytes for column in self.columns.values()}
        regions = sum(400 + region.nbytes for region in self.regions.values())
        return planned + regions + sum(400 + nbytes for nbytes in bands.values())


def known_key(name: str, ids: frozenset[str]) -> Key | None:
    """Return the id in a reference (`datasets/d-...`), or None if the id is not in `ids`."""
    id = name.rpartition("/")[2]
    return id if id in ids else None


def plan_domain(
    root: str,
    records: RecordsById,
    chunks: Mapping[str, PlannedChunks],
    form: FileForm,
    compressed: Mapping[str, CompressedMatrix] | None = None,
) -> DomainPlan:
    """Plan the file of a domain; `records` has the records of all objects reachable from the group `root`, by id.

    `chunks` maps the id of each dataset that can have elements to its chunks, sized as in the file. `compressed`
    maps ids to matrices that are compressed in the file. Raises `Unsupported`, `TooLarge` or `BadRequest` if an object
    cannot be in a file; the message names the object.
    """
    shifted = frozenset(id for id, one in chunks.items() if one.shifted is not None)
    return _Planning(records, form, compressed or {}, shifted).plan(root, chunks)


class _Planning:
    """Plans one file: collects the planned objects, the pieces of the file, and the global heap of all objects."""

    def __init__(
        self,
        records: RecordsById,
        form: FileForm,
        compressed: Mapping[str, CompressedMatrix],
        shifted: frozenset[str],
    ) -> None:
        self._records = records
        self._form = form
        self._compressed = compressed
        self._shifted = shifted
        self._ids = frozenset(records)
        self._heap = GlobalHeapPlan()
        self._objects: list[PlannedObject] = []
        self._pieces: list[FilePiece] = []
        self._regions: dict[Key, ChunkRegion] = {}
        self._columns: dict[Key, MatrixColumn] = {}
        self._beside = self._defined_sets()

    def plan(self, root: str, chunks: Mapping[str, PlannedChunks]) -> DomainPlan:
        others = sorted(id for id in self._records if id != root)
        for id in (root, *others):
            record = self._records[id]
            try:
                self._add(record, chunks.get(id))
            except HsparseError as error:
                if id in error.message:
                    raise
                raise type(error)(f"{id} cannot be in a file: {error.message}") from error
        pieces = (*self._heap.pieces(), *self._ordered_pieces())
        file = plan_file(self._objects, root, pieces, user_block=user_block_of(self._records[root]))
        return DomainPlan(file, self._regions, self._ids, self._columns)

    def _ordered_pieces(self) -> Iterator[FilePiece]:
        """Yield the pieces whose bytes the plan generates, then the pieces of chunks."""
        yield from (piece for piece in self._pieces if piece.make is not None)
        yield from (piece for piece in self._pieces if piece.make is None)

    def _add(self, record: Json, chunks: PlannedChunks | None) -> None:
        id, ordered = record["id"], _is_ordered(record)
        kind = collection_of(id)
        if kind == "datasets" and chunks is not None and (encoding := self._form.encoding(record)):
            self._add_matrix(record, chunks, encoding)
            return
        attributes = self._attributes(record)
        if kind == "groups":
            self._objects.append(PlannedGroup(id, self._links(record), attributes, ordered))
        elif kind == "datatypes":
            datatype = file_type(parse_type(record["type"]).item)
            self._objects.append(PlannedDatatype(id, datatype, attributes, ordered))
        elif chunks is None:
            self._objects.append(self._empty(record, attributes))
        else:
            self._add_dataset(record, chunks, attributes)

    def _add_dataset(self, record: Json, chunks: PlannedChunks, attributes: list[PlannedAttribute]) -> None:
        committed = self._committed(record["type"])
        found = [
            plan_dataset(
                record,
                chunks,
                self._form_of(record),
                attributes,
                self._heap,
                self._key_of,
                committed,
                ordered=_is_ordered(record),
            )
        ]
        if self._has_defined_set(record):
            found.append(plan_defined_set(found[0].planned, record, chunks))
        for one in found:
            self._objects.append(one.planned)
            self._pieces += one.pieces
            if one.region is not None and one.region.size:
                self._regions[one.region.key] = one.region

    def _add_matrix(self, record: Json, chunks: PlannedChunks, encoding: MatrixEncoding) -> None:
        known = self._compressed.get(record["id"])
        bands, sizes = (
            (plan_bands(record, chunks, encoding), None) if known is None else (known.bands, known.sizes)
        )
        declared = encoding.attributes(record, bands.count, keep_old=self._form.layout is FileLayout.AUTO)
        described = (record.get("attributes") or {}) | declared
        attributes = self._attributes({**record, "attributes": described})
        committed = self._committed(record["type"])
        found = plan_matrix(
            record, bands, encoding, attributes, committed, ordered=_is_ordered(record), sizes=sizes
        )
        self._objects += found.objects
        self._pieces += found.pieces
        self._columns |= found.columns
        self._regions |= found.regions

    def _empty(self, record: Json, attributes: list[PlannedAttribute]) -> PlannedDataset:
        """Plan a dataset with a null dataspace."""
        return PlannedDataset(
            record["id"],
            file_type(parse_type(record["type"]).item),
            shape_json(record["shape"]),
            plan_layout(ContiguousLayout(None, 0)),
            attributes=attributes,
            committed=self._committed(record["type"]),
            ordered=_is_ordered(record),
        )

    def _links(self, group: Json) -> list[PlannedLink]:
        """Plan a group's links, and add links to defined sets; hard links to objects not in the file are omitted."""
        found = []
        links = group.get("links") or {}
        for title in _in_order(links):
            link = links[title]
            if link["class"] == HARD:
                if link["id"] in self._ids:
                    found.append(PlannedLink(title, PlannedTarget(link["id"])))
            elif link["class"] == SOFT:
                found.append(PlannedLink(title, StoredSoftLink(link["h5path"])))
            else:
                found.append(PlannedLink(title, StoredExternalLink(external_file(link), link["h5path"])))
        sets = self._beside.get(group["id"], {})
        return found + [PlannedLink(title, PlannedTarget((id, "defined"))) for title, id in sets.items()]

    def _attributes(self, record: Json) -> list[PlannedAttribute]:
        attributes = record.get("attributes") or {}
        attributes = attributes | bounds_attributes(record.get("shape") or {}) | layout_attributes(record)
        found = [self._attribute(name, attributes[name]) for name in _in_order(attributes)]
        if self._has_defined_set(record):
            name = _free(DEFINED, attributes)
            data = address_to((record["id"], "defined"))
            found.append(PlannedAttribute(name, file_type(REFERENCE_TYPE), SCALAR, data))
        return found

    def _has_defined_set(self, record: Json) -> bool:
        if collection_of(record["id"]) != "datasets" or self._form_of(record).is_structured:
            return False
        return is_sparse(record) and self._form.encoding(record) is None

    def _form_of(self, record: Json) -> FileForm:
        """Return the form of a dataset: `STOCK` if it has shifted chunks (`shifted_chunks`), else that of the file."""
        return STOCK if record["id"] in self._shifted else self._form

    def _attribute(self, name: str, attribute: Json) -> PlannedAttribute:
        kind = file_type(parse_type(attribute["type"]).item)
        committed = self._committed(attribute["type"])
        if dims_of(attribute["shape"]) is None:
            return PlannedAttribute(name, kind, attribute["shape"], Addressed(b""), committed)
        data = plan_elements(kind, attribute_values(attribute), self._heap, self._key_of)
        return PlannedAttribute(name, kind, shape_json(attribute["shape"]), data, committed)

    def _committed(self, item: Any) -> Key | None:
        """Return the key of the committed type that a datatype refers to, or None if that type is not in the file."""
        id = item.get("id") if isinstance(item, dict) else None
        return self._key_of(id) if isinstance(id, str) else None

    def _key_of(self, name: str) -> Key | None:
        return known_key(name, self._ids)

    def _defined_sets(self) -> dict[str, dict[str, str]]:
        """Return the added links to defined sets as {group id: {link name: id of the sparse dataset}}.

        Each link to a defined set is in the group that has the first link to its sparse dataset.
        """
        found: dict[str, dict[str, str]] = {}
        seen: set[str] = set()
        for id in sorted(self._ids):
            links = self._records[id].get("links") or {}
            for title in sorted(links):
                target = links[title].get("id")
                if target not in self._ids or target in seen:
                    continue
                if self._has_defined_set(self._records[target]):
                    seen.add(target)
                    names = found.setdefault(id, {})
                    names[_free(title + DEFINED_SUFFIX, {**links, **names})] = target
        return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """Return `name` with as many underscores appended as it takes until the name is not in `taken`."""
    while name in taken:
        name += "_"
    return name


def _is_ordered(record: Json) -> bool:
    """Return whether an object tracks the creation order of its links and attributes."""
    asked = (record.get("creationProperties") or {}).get("CreateOrder")
    return asked not in (None, 0, "0", False)


def _in_order(items: Mapping[str, Json]) -> list[str]:
    """Return the names of links or attributes, sorted by creation time."""
    return sorted(items, key=lambda name: items[name].get("created", 0))
