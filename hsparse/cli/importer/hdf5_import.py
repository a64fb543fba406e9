"""An HDF5 file into a domain: committed types, datasets with their values, groups, and the root's links last.

So nobody sees anything of the file before all of it is there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import prod
from typing import Any, TypeAlias

from hsparse.cli.importer.dense_upload import Advance, DenseUpload, stored_chunks
from hsparse.cli.importer.file_objects import FileObject, FileObjects
from hsparse.cli.importer.hdf5_matrix import open_matrix, values_body
from hsparse.cli.importer.object_body import common_body, dataset_body, link_bodies, values_bytes
from hsparse.cli.importer.server import Server
from hsparse.cli.importer.source import naming
from hsparse.cli.importer.sparse_matrix import MatrixUpload, matrix_body
from hsparse.cli.importer.stored_data import Dims, StoredData
from hsparse.cli.importer.structured_upload import StructuredData, StructuredUpload
from hsparse.cli.importer.uploads import Uploads
from hsparse.errors import BadRequest, Conflict, NotFound, TooLarge, Unsupported
from hsparse.format.hdf5.layout_message import Structured
from hsparse.format.hdf5.stored_elements import check_known
from hsparse.format.hdf5.stored_object import ObjectKind, StoredObject
from hsparse.format.hdf5.stored_type import has_references
from hsparse.model.objid import collection_of

Json = dict[str, Any]
LINKS = 5000
"""Links that one request has."""
OBJECTS = 100
"""Objects that one request creates at most."""
BODIES = 4 * 1024 * 1024
"""Bytes, in base64, of the values that such a request has of attributes and datasets, unless one object has more."""
INLINE = 64 * 1024
"""Bytes of values that are sent with the dataset itself."""
Upload: TypeAlias = Callable[[], None]
UploadMaker: TypeAlias = Callable[[Json, set[Dims]], Upload]
"""Is told what the server answered, and which chunks it has."""


class Hdf5Import:
    """One import; `resumed` says that some of it may be there."""

    def __init__(
        self, server: Server, uploads: Uploads, objects: FileObjects, advance: Advance, *, resumed: bool
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._objects = objects
        self._advance = advance
        self._resumed = resumed
        self._matrices: list[MatrixUpload] = []

    def run(self) -> None:
        """Import everything; raises what goes wrong, naming the object's path in the file."""
        for step in (self._create_types, self._complete_types):
            for _ in self._uploads.ahead(self._together(ObjectKind.DATATYPE), step):
                pass
        for uploads in self._uploads.ahead(self._together(ObjectKind.DATASET), self._create_datasets):
            for submit in uploads:
                submit()
        for submit in self._uploads.ahead(self._objects.matrices(), self._create_matrix):
            submit()
        self._uploads.finish()
        for matrix in self._matrices:
            matrix.check()
        root, *_ = self._objects.of(ObjectKind.GROUP)
        for _ in self._uploads.ahead(self._together(ObjectKind.GROUP), self._create_groups):
            pass
        self._complete_root(root)

    def _together(self, kind: ObjectKind) -> Iterator[list[FileObject]]:
        """Yield the objects of a kind, but the root group, as many as one request may create."""
        objects = (one for one in self._objects.of(kind) if one.path != "/")
        while some := list(islice(objects, OBJECTS)):
            yield some

    def _create(self, collection: str, bodies: list[tuple[str, Json]]) -> list[tuple[Json, bool]]:
        """Create objects, given by their paths; return what the server has of each, and whether it was there."""
        found: list[tuple[Json, bool]] = []
        some: list[tuple[str, Json]] = []
        nbytes = 0
        for path, body in bodies:
            if some and nbytes + _nbytes(body) > BODIES:
                found += self._create_together(collection, some)
                some, nbytes = [], 0
            some.append((path, body))
            nbytes += _nbytes(body)
        return found + self._create_together(collection, some)

    def _create_together(self, collection: str, bodies: list[tuple[str, Json]]) -> list[tuple[Json, bool]]:
        """Create objects by one request; where it fails, or some may be there, one by one: so it is told which."""
        if len(bodies) > 1 and not self._resumed:
            try:
                made = self._server.json("POST", f"/{collection}", [body for _, body in bodies])
                return [(record, False) for record in made["objects"]]
            except (BadRequest, Conflict, NotFound, TooLarge, Unsupported):
                pass  # whatever was made was deleted again
        return [self._create_one(collection, path, body) for path, body in bodies]

    def _create_one(self, collection: str, path: str, body: Json) -> tuple[Json, bool]:
        with naming(path):
            try:
                return self._server.json("POST", f"/{collection}", body), False
            except Conflict:
                return self._server.json("GET", f"/{collection}/{body['id']}"), True

    def _create_types(self, some: list[FileObject]) -> None:
        bodies = []
        for one in some:
            with naming(one.path):
                stored = self._objects.read(one)
                assert stored.type is not None
                check_known(stored.type)
                # Its attributes may be of types that are not there yet.
                body = common_body(self._objects, stored, one.path, attributes=False)
            bodies.append((one.path, body | {"type": stored.type.item}))
        self._create("datatypes", bodies)

    def _complete_types(self, some: list[FileObject]) -> None:
        for one in some:
            with naming(one.path):
                self._put_attributes(one, self._objects.read(one))

    def _create_datasets(self, some: list[FileObject]) -> list[Upload]:
        drafts = []
        for one in some:
            with naming(one.path):
                drafts.append(self._draft(one))
        bodies = [(one.path, body) for one, (body, _) in zip(some, drafts, strict=True)]
        uploads = []
        for (record, was_there), (body, make) in zip(self._create("datasets", bodies), drafts, strict=True):
            if make is None:
                continue
            if "value_base64" in body and not was_there:
                self._advance(len(body["value_base64"]) * 3 // 4)
                continue
            there = stored_chunks(self._server, record) if was_there and self._resumed else set()
            uploads.append(make(record, there))
        return uploads

    def _draft(self, one: FileObject) -> tuple[Json, UploadMaker | None]:
        """Return what creates a dataset, with its values if they are few, and what sends them if they are not there."""
        stored = self._objects.read(one)
        dataset = stored.dataset
        assert dataset is not None
        check_known(dataset.type)
        upload: type[DenseUpload] | type[StructuredUpload]
        data: Any
        if isinstance(dataset.layout, Structured):
            upload, data = StructuredUpload, StructuredData(self._objects, stored)
            body = data.body(one.path)
        else:
            upload, data = DenseUpload, StoredData(self._objects, dataset)
            body = dataset_body(self._objects, stored, one.path)
            if not data.is_allocated:
                return body, None
            # References that lead nowhere are counted as they are read: once.
            few = data.is_whole and data.size * prod(data.dims) <= INLINE
            if few and not has_references(dataset.type):
                values = values_bytes(data.read((0,) * len(data.dims), data.dims))
                if len(values) <= INLINE:
                    body["value_base64"] = base64.b64encode(values).decode()

        def make(record: Json, there: set[Dims]) -> Upload:
            record["type"] = dataset.type.item
            sent = upload(self._server, self._uploads, one.path, record, data, self._advance)
            return partial(sent.submit, there)

        return body, make

    def _create_matrix(self, one: FileObject) -> Upload:
        assert one.matrix is not None
        with naming(one.path):
            stored = self._objects.read(one)
            matrix = open_matrix(self._objects, one.matrix)
            bodies = (
                common_body(self._objects, stored, one.path),
                matrix_body(matrix),
                values_body(self._objects, one.matrix),
            )
            properties = {
                name: value for body in bodies for name, value in body["creationProperties"].items()
            }
            body = {name: value for body in bodies for name, value in body.items()}
            self._create_one("datasets", one.path, body | {"creationProperties": properties})
        upload = MatrixUpload(self._server, self._uploads, one.path, one.id, matrix, self._advance)
        self._matrices.append(upload)
        return upload.submit

    def _create_groups(self, some: list[FileObject]) -> None:
        bodies, pieces = [], []
        for one in some:
            with naming(one.path):
                body = common_body(self._objects, self._objects.read(one), one.path)
                pieces.append(self._links(one))
                bodies.append((one.path, body | {"links": next(pieces[-1], {})}))
        made = self._create("groups", bodies)
        for one, rest, (_, was_there) in zip(some, pieces, made, strict=True):
            with naming(one.path):
                for links in self._links(one) if was_there else rest:
                    self._server.json("PUT", f"/groups/{one.id}/links", {"links": links})

    def _complete_root(self, root: FileObject) -> None:
        with naming(root.path):
            stored = self._objects.read(root)
            self._put_attributes(root, stored)
            for links in self._links(root):
                self._server.json("PUT", f"/groups/{root.id}/links", {"links": links})

    def _put_attributes(self, one: FileObject, stored: StoredObject) -> None:
        attributes = common_body(self._objects, stored, one.path)["attributes"]
        if attributes:
            url = f"/{collection_of(one.id)}/{one.id}/attributes"
            self._server.json("PUT", url, {"attributes": attributes})

    def _links(self, one: FileObject) -> Iterator[Json]:
        links = iter(self._objects.read(one).links)
        while piece := list(islice(links, LINKS)):
            yield link_bodies(self._objects, piece, one.path)


def _nbytes(body: Json) -> int:
    """Return about how many bytes the values in a body take."""
    values = [body, *body.get("attributes", {}).values()]
    return sum(len(one.get("value_base64") or one.get("value") or "") for one in values)
