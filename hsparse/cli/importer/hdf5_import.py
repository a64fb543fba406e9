"""An HDF5 file into a domain: committed types, datasets with their values, groups, and the root's links last.

So nobody sees anything of the file before all of it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from hsparse.cli.importer.dense_upload import Advance, DenseUpload, stored_chunks
from hsparse.cli.importer.file_objects import FileObject, FileObjects
from hsparse.cli.importer.hdf5_matrix import open_matrix, values_body
from hsparse.cli.importer.object_body import common_body, dataset_body, link_bodies
from hsparse.cli.importer.server import Server
from hsparse.cli.importer.source import naming
from hsparse.cli.importer.sparse_matrix import MatrixUpload, matrix_body
from hsparse.cli.importer.stored_data import StoredData
from hsparse.cli.importer.structured_upload import StructuredData, StructuredUpload
from hsparse.cli.importer.uploads import Uploads
from hsparse.errors import Conflict
from hsparse.format.hdf5.layout_message import Structured
from hsparse.format.hdf5.stored_elements import check_known
from hsparse.format.hdf5.stored_object import ObjectKind, StoredObject
from hsparse.model.objid import collection_of

Json = dict[str, Any]
LINKS = 5000
"""Links that one request has."""
Upload: TypeAlias = Callable[[], None]


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
        types = self._objects.of(ObjectKind.DATATYPE)
        for step in (self._create_type, self._complete_type):
            for _ in self._uploads.ahead(types, step):
                pass
        for submit in self._uploads.ahead(self._objects.of(ObjectKind.DATASET), self._create_dataset):
            submit()
        for submit in self._uploads.ahead(self._objects.matrices(), self._create_matrix):
            submit()
        self._uploads.finish()
        for matrix in self._matrices:
            matrix.check()
        root, *groups = self._objects.of(ObjectKind.GROUP)
        for _ in self._uploads.ahead(groups, self._create_group):
            pass
        self._complete_root(root)

    def _create(self, collection: str, body: Json) -> tuple[Json, bool]:
        """Create an object, and return what the server has of it; or what it had, and that it was there."""
        try:
            return self._server.json("POST", f"/{collection}", body), False
        except Conflict:
            return self._server.json("GET", f"/{collection}/{body['id']}"), True

    def _create_type(self, one: FileObject) -> None:
        with naming(one.path):
            stored = self._objects.read(one)
            assert stored.type is not None
            check_known(stored.type)
            # Its attributes may be of types that are not there yet.
            body = common_body(self._objects, stored, one.path, attributes=False) | {"type": stored.type.item}
            self._create("datatypes", body)

    def _complete_type(self, one: FileObject) -> None:
        with naming(one.path):
            self._put_attributes(one, self._objects.read(one))

    def _create_dataset(self, one: FileObject) -> Upload:
        with naming(one.path):
            stored = self._objects.read(one)
            dataset = stored.dataset
            assert dataset is not None
            check_known(dataset.type)
            structured = isinstance(dataset.layout, Structured)
            source = StructuredData(self._objects, stored) if structured else None
            body = source.body(one.path) if source else dataset_body(self._objects, stored, one.path)
            data = None if source else StoredData(self._objects, dataset)
            record, was_there = self._create("datasets", body)
            record["type"] = dataset.type.item
            there = stored_chunks(self._server, record) if was_there and self._resumed else set()
        told = (self._server, self._uploads, one.path, record)
        if source is not None:
            return partial(StructuredUpload(*told, source, self._advance).submit, there)
        assert data is not None
        if not data.is_allocated:
            return lambda: None
        return partial(DenseUpload(*told, data, self._advance).submit, there)

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
            self._create("datasets", body | {"creationProperties": properties})
        upload = MatrixUpload(self._server, self._uploads, one.path, one.id, matrix, self._advance)
        self._matrices.append(upload)
        return upload.submit

    def _create_group(self, one: FileObject) -> None:
        with naming(one.path):
            stored = self._objects.read(one)
            body = common_body(self._objects, stored, one.path)
            pieces = self._links(one)
            _, was_there = self._create("groups", body | {"links": next(pieces, {})})
            for links in self._links(one) if was_there else pieces:
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
