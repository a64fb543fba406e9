"""Implement the service node's interfaces for virtual datasets: elements, extents, and the check of new datasets."""

from __future__ import annotations

from typing import Any

from hsparse.compute import compute
from hsparse.errors import BadRequest, HsparseError, Unsupported
from hsparse.hdf5.format.parse.virtual_mapping import block_name
from hsparse.hdf5.virtual_dataset.elements import VirtualElements
from hsparse.hdf5.virtual_dataset.layouts import grows
from hsparse.hdf5.virtual_dataset.mappings import checked_layout
from hsparse.hdf5.virtual_dataset.sources import Sources, current_record
from hsparse.model.acl import Right
from hsparse.model.dataspace import dims_of, is_extensible, max_dims_of
from hsparse.model.layout import MAPPED
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.service import Service
from hsparse.sn.values.file_data import ReadTable
from hsparse.wire.message import Record

MAPPING_WORK = 1000
"""Cost of checking one mapping, in elements, see `compute`."""


class VirtualDatasets:
    """The `OtherData` implementation for virtual datasets."""

    elements = VirtualElements

    def chunks(self, owners: Owners, dataset: StoredDataset, bucket: str, read_table: ReadTable) -> Any:
        """Raise `Unsupported` for chunk queries, as libhdf5 does: only the sources have chunks."""
        raise Unsupported(f"{dataset.id} is virtual and has no chunks: request its sources' chunks.")

    async def counts(self, owners: Owners, record: Record, read_table: ReadTable) -> Record:
        """Return an empty dict: stored bytes are counted for the source datasets."""
        return {}

    async def check(self, request: Request, record: Record) -> None:
        """Normalize the layout of a new dataset in `record`, raising `BadRequest`. The sources need not exist."""
        properties, shape = record["creationProperties"], record["shape"]
        if properties.get("initializer"):
            raise BadRequest("A virtual dataset cannot have an initializer: omit it, or set a fill value.")
        asked, rank = properties["layout"], len(dims_of(shape) or ())
        mappings = asked.get("mappings")
        work = MAPPING_WORK * len(mappings) if isinstance(mappings, list) else 0
        layout = await compute(work, checked_layout, asked, rank)
        endless = grows(layout["mappings"])
        if endless and not is_extensible(shape):
            raise BadRequest("An unlimited mapping needs maxdims: the dataset grows with its sources.")
        if layout.pop("dims", None) is None and "flags" in layout:
            record["layout"] = record["layout"] | {"dims": await _first_grid(request, record, layout)}
        # The layout has no top-level dims, so that HSDS refuses the dataset instead of reading fill values.
        record["layout"] = {"class": MAPPED, "layout": record["layout"]}
        record["creationProperties"] = properties | {"layout": layout}
        record[VIRTUAL_DATA] = {"grows": endless} | ({"dims": shape["dims"]} if endless else {})


async def _first_grid(request: Request, record: Record, layout: Record) -> list[int]:
    """Return the first source's chunk dimensions, so that reads cover its whole chunks, or else the record's own."""
    own: list[int] = record["layout"]["dims"]
    names = [(block_name(one["file"], 0), block_name(one["dataset"], 0)) for one in layout["mappings"][:1]]
    try:
        found = await Sources(request.service.owners, record, request.file_rights()).find_all(names)
    except HsparseError:
        return own
    grids = [source.dataset.spec.dims for source in found.values() if source is not None]
    if not grids or len(grids[0]) != len(own):
        return own
    limits = max_dims_of(record["shape"])
    return [min(dim, limit or dim) for dim, limit in zip(grids[0], limits, strict=True)]


class VirtualExtents:
    """The `Extents` implementation for virtual datasets."""

    @classmethod
    def of(cls, service: Service) -> VirtualExtents:
        """Return an instance, which does not depend on `service`."""
        return cls()

    async def current(self, request: Request, record: Record) -> Record:
        """Return the record with its current extent, see `hsparse.sn.request.Extents`."""
        domain = request.found or await request.named_domain(Right.READ)
        if (
            record["root"] != domain.root
        ):  # reached by an external link: source names are relative to another domain
            return record
        return await current_record(request.service.owners, record, request.file_rights())
