"""The addresses of chunks in the file of their domain, in the state that the file's etag names."""

from __future__ import annotations

from hsparse.errors import BadRequest, Conflict, PreconditionFailed, Unsupported
from hsparse.format.hdf5.plan.dataset_plan import chunk_form
from hsparse.format.hdf5.plan.file_form import FileForm, FileLayout
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import collection_of
from hsparse.sn.files.domain_state import file_href, record_digest, requested_form
from hsparse.sn.files.file_chunks import FileChunks
from hsparse.sn.files.file_plans import FilePlans, PlannedFile
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import MAX_GROUPS
from hsparse.sn.records.stored_chunks import ChunkPages, Json
from hsparse.sn.request import Request
from hsparse.wire.message import Record


class FileAddresses:
    """One planned file, for one map: each object of the map is compared with the plan."""

    def __init__(self, file: PlannedFile, asked: FileForm, href: str, request: Request) -> None:
        self.file = file
        self._asked = asked
        self.href = href
        self._request = request
        self._checked: set[str] = set()

    @classmethod
    async def of(cls, request: Request) -> FileAddresses:
        """Return the current file of the request's domain, in the form that the request names."""
        root = request.domain.root
        if root is None:
            raise BadRequest(f"{request.domain.path} is a folder: only domains are files.")
        # Matrices have no addresses, so that a map has more of the layout stock.
        form = requested_form(request, FileLayout.STOCK.value)
        if form.matrices is not None:
            raise BadRequest("Matrices are no chunks of the file, and have no addresses: leave matrices out.")
        href = file_href(request, request.domain, form)
        return cls(
            await request.service.component(FilePlans).current(root, form, check=True), form, href, request
        )

    def to_json(self) -> Json:
        """Return the JSON of the file in a map: URL, etag, size and form."""
        size = self.file.plan.file.size
        return {"href": self.href, "etag": self.file.etag, "size": size, **self._asked.params}

    def check(self, record: Record) -> None:
        """Raise `PreconditionFailed` for an object that has changed since the plan."""
        id = record["id"]
        if self.file.records.get(id) != record_digest(record):
            raise self.changed(id)
        self._checked.add(id)

    def check_complete(self) -> None:
        """Raise `PreconditionFailed` if a group or dataset of the file was not checked: it was unlinked."""
        ids = [id for id in self.file.records if collection_of(id) != "datatypes"]
        if len(self._checked) < len(ids) and sum(collection_of(id) == "groups" for id in ids) <= MAX_GROUPS:
            raise self.changed(next(id for id in ids if id not in self._checked))

    def form(self, dataset: Dataset) -> ChunkForm:
        """Return the form of a dataset's chunks in the file."""
        region = self.file.plan.regions.get((dataset.id, "chunks"))
        return chunk_form(dataset.spec, self._asked) if region is None else region.form

    def chunks(self, dataset: Dataset, chunks: ChunkPages) -> FileChunks:
        """Return a dataset's chunks with their places in the file; `Conflict` if the dataset is not in it.

        `Unsupported` for data that stays in other files, and for chunks that are converted.
        """
        if dataset.id not in self.file.records:
            raise Conflict(
                f"No hard link leads to {dataset.id}, so the domain's file does not have it: link it."
            )
        self.check(dataset.record)
        if self._asked.encoding(dataset.record) is not None:
            raise Unsupported(
                f"{dataset.id} is a matrix in this file, whose arrays are no chunks of it: ask for layout=stock, or "
                "without addresses=file."
            )
        if is_file_backed(dataset.record):
            raise Unsupported(
                f"The data of {dataset.id} stays in a file: its chunks are there, ask without addresses=file."
            )
        if self.form(dataset) in (ChunkForm.TRANSCODED_SECTIONS, ChunkForm.PACKED):
            raise Unsupported(
                f"Chunks of {dataset.id} are converted for this file, which no map describes: ask for layout=stock, or "
                "without addresses=file."
            )
        return FileChunks(dataset, chunks, self.file.plan, self.changed)

    def changed(self, what: str) -> PreconditionFailed:
        """Drop the plan and return the error for something that has changed since."""
        root = self._request.domain.root or ""
        self._request.service.component(FilePlans).drop(root, self._asked, self.file.etag)
        return PreconditionFailed(f"{what} was changed while the map was made. Ask for the map again.")
