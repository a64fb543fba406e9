"""Import an HDF5 file: first committed types, then datasets and values, then groups, and at last the root group.

In this order, no part of the file has a link before the part is complete.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import prod
from typing import Any, TypeAlias

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.sources.value_batch import answer_parts
from hsparse.errors import BadRequest, Conflict, Gone, NotFound, TooLarge, Unsupported
from hsparse.hdf5.format.lower_bounds import with_bounds
from hsparse.hdf5.format.messages.file_type import has_references
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.parse.parsed_elements import check_readable
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, ParsedDataset, ParsedObject
from hsparse.hdf5.format.virtual_attribute import with_layout
from hsparse.hdf5.importer.defined_upload import DefinedData, DefinedUpload
from hsparse.hdf5.importer.dense_upload import DenseUpload, create_or_find, stored_chunks
from hsparse.hdf5.importer.file_data import Dims, InputData
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.importer.frames_matrix import open_frames
from hsparse.hdf5.importer.hdf5_matrix import open_matrix, values_body
from hsparse.hdf5.importer.matrix_forms import FramesForm
from hsparse.hdf5.importer.object_body import (
    changed_filters,
    common_body,
    dataset_body,
    link_bodies,
    values_bytes,
    virtual_body,
)
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.sparse_matrix import MatrixUpload, matrix_body
from hsparse.hdf5.importer.sparsified_upload import SparsifiedData, SparsifiedUpload, Sparsify
from hsparse.hdf5.importer.structured_upload import StructuredData, StructuredUpload
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.hdf5.importer.virtual_links import VirtualLinks
from hsparse.model.ids import collection_of

Json = dict[str, Any]
MAX_LINKS = 5000
"""The maximum number of links in a request."""
MAX_OBJECTS = 100
"""The maximum number of objects that a request creates."""
MAX_VALUE_BYTES = 4 * 1024 * 1024
"""The maximum number of bytes of base64 values in a request that creates several objects."""
MAX_INLINE_BYTES = 64 * 1024
"""The maximum number of bytes of values that are sent in the request that creates their dataset."""
Data: TypeAlias = InputData | VirtualData | StructuredData | DefinedData | SparsifiedData
Upload: TypeAlias = Callable[[], None]
UploadMaker: TypeAlias = Callable[[Json, dict[Dims, int]], Upload]
"""Returns a dataset's upload, given the server's JSON of the dataset and the chunks that the server stores."""
MAX_KEPT_ROWS = 1000
"""A chunk index with at most this many rows is cached until the values are sent; longer indexes are read again."""


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to create, at `path` in the file. `body` is the request body; `make` returns an upload of values.

    `links` yields the links of a group that are not in `body`.
    """

    path: str
    body: Json
    make: UploadMaker | None = None
    links: Iterator[Json] | None = None


class Hdf5Import:
    """Imports one file. With `resumed`, some objects may already exist on the server.

    `sparsify` selects dense datasets that become sparse, `links` virtual datasets that stay virtual (default: none).
    """

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        objects: FileObjects,
        advance: Advance,
        *,
        resumed: bool,
        sparsify: Sparsify | None = None,
        links: VirtualLinks | None = None,
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._objects = objects
        self._advance = advance
        self._resumed = resumed
        self._sparsify = sparsify
        self._virtual = links
        self._matrices: list[MatrixUpload] = []

    def run(self) -> None:
        """Import the whole file; the message of an error begins with the path of the object in the file."""
        for step in (self._create_types, self._complete_types):
            for _ in self._uploads.ahead(self._batches(ObjectKind.DATATYPE), step):
                pass
        for uploads in self._uploads.ahead(self._batches(ObjectKind.DATASET), self._create_datasets):
            for submit in uploads:
                submit()
        for submit in self._uploads.ahead(self._objects.matrices(), self._create_matrix):
            submit()
        self._uploads.finish()
        for matrix in self._matrices:
            matrix.check()
        root, *_ = self._objects.of(ObjectKind.GROUP)
        for _ in self._uploads.ahead(self._batches(ObjectKind.GROUP), self._create_groups):
            pass
        self._complete_root(root)

    def _batches(self, kind: ObjectKind) -> Iterator[list[FileObject]]:
        """Yield the objects of a kind, except the root group, in lists of at most `MAX_OBJECTS`."""
        objects = (one for one in self._objects.of(kind) if one.path != "/")
        while some := list(islice(objects, MAX_OBJECTS)):
            yield some

    def _create(
        self, collection: str, objects: Iterator[NewObject]
    ) -> Iterator[tuple[NewObject, Json, bool]]:
        """Create objects; yield (object, JSON, whether an earlier import may have left the object incomplete)."""
        some: list[NewObject] = []
        nbytes = 0
        for one in objects:
            size = _nbytes(one.body)
            if some and nbytes + size > MAX_VALUE_BYTES:
                yield from self._create_together(collection, some)
                some, nbytes = [], 0
            some.append(one)
            nbytes += size
        yield from self._create_together(collection, some)

    def _create_together(
        self, collection: str, some: list[NewObject]
    ) -> Iterator[tuple[NewObject, Json, bool]]:
        """Create objects by one request; if the request fails, create each by its own, so that errors name the object.

        A resumed import skips complete objects and creates the rest one by one: if a common request were refused, the
        server would delete the objects that it created, and accept no values for their ids. The first missing object
        shows where the stopped import ended, so later calls use one request again.
        """
        there = self._complete(collection, some) if self._resumed else set()
        if len(some) > 1 and not self._resumed:
            try:
                made = self._server.json("POST", f"/{collection}", [draft.body for draft in some])["objects"]
            except (BadRequest, Conflict, NotFound, TooLarge, Unsupported):
                pass  # the server has deleted what it created
            else:
                yield from ((draft, record, False) for draft, record in zip(some, made, strict=True))
                return
        all_there = True
        for draft in some:
            if draft.body["id"] in there:
                yield draft, draft.body, False
            else:
                record, was_there = self._create_one(collection, draft.path, draft.body)
                all_there &= was_there
                yield draft, record, was_there
        self._resumed &= all_there

    def _complete(self, collection: str, some: list[NewObject]) -> set[str]:
        """Return the ids of the complete objects in `some`, or an empty set if any object without an upload is missing.

        An object is created with its attributes and first links, so only objects with an upload may be incomplete.
        """
        valued = {one.body["id"]: one.body["value_base64"] for one in some if "value_base64" in one.body}
        found = {one.body["id"] for one in some if one.make is None}
        try:
            if found:
                path = f"/{collection}/{min(found)}/attributes"
                self._server.json("POST", path, {"obj_ids": sorted(found)}, IncludeData=0)
            return found | (self._written(valued) if valued else set())
        except (NotFound, Gone):
            return set()

    def _written(self, valued: dict[str, str]) -> set[str]:
        """Return the ids of datasets with the given values on the server; `valued` maps ids to base64 values."""
        reads = {"reads": [{"ids": list(valued)}]}
        answer = self._server.ask(lambda connection: connection.binary("POST", "/datasets/values", reads))
        parts = zip(valued.items(), answer_parts(answer), strict=True)
        return {id for (id, text), blocks in parts if base64.b64decode(text) == b"".join(blocks)}

    def _create_one(self, collection: str, path: str, body: Json) -> tuple[Json, bool]:
        with path_in_errors(path):
            return create_or_find(self._server, collection, body)

    def _create_types(self, some: list[FileObject]) -> None:
        for _ in self._create("datatypes", map(self._type, some)):
            pass

    def _type(self, one: FileObject) -> NewObject:
        with path_in_errors(one.path):
            stored = self._objects.read(one)
            assert stored.type is not None
            check_readable(stored.type)
            # The attributes may use committed types that do not exist yet, so they are added later.
            body = common_body(self._objects, stored, one.path, attributes=False) | {"type": stored.type.item}
            return NewObject(one.path, body)

    def _complete_types(self, some: list[FileObject]) -> None:
        for one in some:
            with path_in_errors(one.path):
                self._put_attributes(one, self._objects.read(one))

    def _create_datasets(self, some: list[FileObject]) -> list[Upload]:
        uploads = []
        for draft, record, was_there in self._create("datasets", map(self._placed_dataset, some)):
            if draft.make is None:
                continue
            if "value_base64" in draft.body and not was_there:
                self._advance(len(draft.body["value_base64"]) * 3 // 4)
                continue
            uploads.append(draft.make(record, self._stored(record, was_there)))
        return uploads

    def _placed_dataset(self, one: FileObject) -> NewObject:
        found = self._dataset(one)
        return replace(found, body=with_layout(with_bounds(found.body)))

    def _dataset(self, one: FileObject) -> NewObject:
        with path_in_errors(one.path):
            stored = self._objects.read(one)
            dataset = stored.dataset
            assert dataset is not None
            check_readable(dataset.type)
            if isinstance(dataset.layout, RawStructuredLayout):
                structured = StructuredData(self._objects, stored)
                reader = partial(StructuredData, self._objects, stored)
                make = partial(self._upload, StructuredUpload, one.path, dataset, _kept(structured), reader)
                return NewObject(one.path, structured.body(one.path), make)
            if one.defined is not None:
                sparse = DefinedData(self._objects, stored, one.defined.address)
                again = partial(DefinedData, self._objects, stored, one.defined.address)
                make = partial(self._upload, DefinedUpload, one.path, dataset, _kept(sparse), again)
                return NewObject(one.path, sparse.body(one.path), make)
            if (
                self._sparsify is not None
                and one.dims
                and 0 not in one.dims
                and self._sparsify.is_meant(one.path)
            ):
                thinned = partial(SparsifiedData, self._objects, stored, one.path, self._sparsify)
                chosen = thinned()
                make = partial(self._upload, SparsifiedUpload, one.path, dataset, _kept(chosen), thinned)
                return NewObject(one.path, chosen.body(), make)
            layout = None if self._virtual is None else self._virtual.layout(self._objects, dataset, one.path)
            if layout is not None:
                return NewObject(one.path, virtual_body(self._objects, stored, one.path, layout))
            data = open_data(self._objects, dataset)
            storage = data.storage if isinstance(data, VirtualData) else None
            body = dataset_body(self._objects, replace(stored, dataset=data.dataset), one.path, storage)
            if changed := changed_filters(data.dataset):
                self._objects.refiltered[one.path] = changed
            has_no_chunks = data.records is not None and not len(data.records)
            if not data.is_allocated or has_no_chunks:
                return NewObject(one.path, body)
            make = partial(
                self._upload,
                DenseUpload,
                one.path,
                dataset,
                _kept(data),
                partial(open_data, self._objects, dataset),
            )
            return NewObject(one.path, body | _inline(data), make)

    def _upload(
        self,
        kind: type[DenseUpload | StructuredUpload | DefinedUpload | SparsifiedUpload],
        path: str,
        dataset: ParsedDataset,
        kept: Any,
        read: Callable[[], Any],
        record: Json,
        there: dict[Dims, int],
    ) -> Upload:
        """Return a function that submits a dataset's values, from `kept` or, if `kept` is None, from `read()`."""
        record["type"] = dataset.type.item

        def submit() -> None:
            with path_in_errors(path):
                data = read() if kept is None else kept
            kind(self._server, self._uploads, path, record, data, self._advance).submit(there)

        return submit

    def _create_matrix(self, one: FileObject) -> Upload:
        with path_in_errors(one.path):
            stored = self._objects.read(one)
            form = one.matrix or one.frames
            assert form is not None
            if isinstance(form, FramesForm):
                matrix = open_frames(self._objects, form)
            else:
                matrix = open_matrix(self._objects, form)
            bodies = (
                common_body(self._objects, stored, one.path),
                matrix_body(matrix),
                values_body(self._objects, form),
            )
            properties = {
                name: value for body in bodies for name, value in body["creationProperties"].items()
            }
            body = {name: value for body in bodies for name, value in body.items()}
        body = with_bounds(body | {"creationProperties": properties})
        record, was_there = self._create_one("datasets", one.path, body)
        there = self._stored(record, was_there)
        upload = MatrixUpload(self._server, self._uploads, one.path, record, matrix, self._advance, there)
        self._matrices.append(upload)
        return upload.submit

    def _stored(self, record: Json, was_there: bool) -> dict[Dims, int]:
        """Return the chunks of a dataset that an earlier import has stored, as `stored_chunks` does."""
        return stored_chunks(self._server, record) if was_there and self._resumed else {}

    def _create_groups(self, some: list[FileObject]) -> None:
        by_path = {one.path: one for one in some}
        for draft, record, was_there in self._create("groups", map(self._group, some)):
            with path_in_errors(draft.path):
                for links in self._links(by_path[draft.path]) if was_there else draft.links or ():
                    if links:
                        self._server.json("PUT", f"/groups/{record['id']}/links", {"links": links})

    def _group(self, one: FileObject) -> NewObject:
        with path_in_errors(one.path):
            body = common_body(self._objects, self._objects.read(one), one.path)
            links = self._links(one)
            return NewObject(one.path, body | {"links": next(links, {})}, links=links)

    def _complete_root(self, root: FileObject) -> None:
        with path_in_errors(root.path):
            stored = self._objects.read(root)
            self._put_attributes(root, stored)
            for links in filter(None, self._links(root)):
                self._server.json("PUT", f"/groups/{root.id}/links", {"links": links})

    def _put_attributes(self, one: FileObject, stored: ParsedObject) -> None:
        attributes = common_body(self._objects, stored, one.path)["attributes"]
        if attributes:
            url = f"/{collection_of(one.id)}/{one.id}/attributes"
            self._server.json("PUT", url, {"attributes": attributes})

    def _links(self, one: FileObject) -> Iterator[Json]:
        links = iter(self._objects.read(one).links)
        while piece := list(islice(links, MAX_LINKS)):
            yield link_bodies(self._objects, piece)


def _kept(data: Data) -> Data | None:
    """Return `data`, or None if its chunk index is too long to stay in memory until values are sent."""
    return data if data.records is None or len(data.records) <= MAX_KEPT_ROWS else None


def _inline(data: InputData | VirtualData) -> Json:
    """Return a dataset's values for its creation request, or {} if the values must be sent separately."""
    # Data with references is read only once, because reading counts the lost references.
    if (
        not data.is_whole
        or data.size * prod(data.dims) > MAX_INLINE_BYTES
        or has_references(data.dataset.type)
    ):
        return {}
    values = values_bytes(data.read((0,) * len(data.dims), data.dims))
    return {"value_base64": base64.b64encode(values).decode()} if len(values) <= MAX_INLINE_BYTES else {}


def _nbytes(body: Json) -> int:
    """Return the approximate size in bytes of the values in a request body."""
    values = [body, *body.get("attributes", {}).values()]
    return sum(len(one.get("value_base64") or one.get("value") or "") for one in values)
