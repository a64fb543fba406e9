"""Import virtual datasets of a file as virtual datasets whose sources are domains of the server, without a copy.

A source is reachable if it is in the same file, or if the file that its mapping names is a domain beside the new domain
or in a folder that the caller names. If a source is not reachable, the dataset is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from posixpath import basename, join
from typing import Any

from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest, Forbidden, Gone, NotFound
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage
from hsparse.hdf5.format.parse.mapping_json import mapping_json
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.format.parse.virtual_mapping import (
    THIS_FILE,
    VirtualMapping,
    block_name,
    parse_virtual_mappings,
)
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.source_dataset import find_object
from hsparse.hdf5.virtual_dataset.mappings import MAX_MAPPINGS
from hsparse.hdf5.virtual_dataset.merging import merged_mappings
from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.layout import VIRTUAL
from hsparse.model.link import external_domain

Json = dict[str, Any]


class VirtualLinks:
    """Builds layouts for the virtual datasets of one file, which is imported into the domain `target`.

    `folder` has the domains of the files that mappings name; the default is the folder of `target`. With `all`, every
    virtual dataset stays virtual and no source is looked up: the file is an export of a domain that has the sources.
    `before` is called before each lookup of a domain.
    """

    def __init__(
        self,
        server: RetryingClient,
        target: str,
        folder: str = "",
        *,
        all: bool = False,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._all = all
        self._before = before
        self._server = server
        self._target = target
        self._folder = folder
        self._domains: dict[str, str | None] = {}
        self._types: dict[tuple[str, str], Any] = {}
        self.linked: dict[str, int] = {}
        """Maps the path of each dataset that stays virtual to its number of mappings."""

    def layout(self, objects: FileObjects, dataset: ParsedDataset, path: str) -> Json | None:
        """Return the layout of a dataset that stays virtual, or None if it is not virtual or must be copied."""
        if not isinstance(dataset.layout, VirtualLayoutMessage) or not dims_of(dataset.shape):
            return None
        mappings = objects.source.run(parse_virtual_mappings(objects.file, dataset.layout))
        found: list[VirtualMapping] = []
        for one in mappings:
            file = self._reached(objects, dataset, one)
            if file is None:
                return None
            found.append(VirtualMapping(file, one.dataset, one.source, one.virtual))
        found = merged_mappings(found)
        if not (found or self._all) or len(found) > MAX_MAPPINGS:
            return None
        self.linked[path] = len(found)
        return {"class": VIRTUAL, "mappings": [mapping_json(one) for one in found]}

    def _reached(self, objects: FileObjects, dataset: ParsedDataset, one: VirtualMapping) -> str | None:
        """Return the file name of a mapping for the new layout, or None if the mapping's source is not reachable."""
        path = block_name(one.dataset, 0)
        if self._all:
            return one.file if one.file == THIS_FILE else join(self._folder, one.file)
        if one.file == THIS_FILE:
            found = find_object(objects.source, objects.file, objects.files, path)
            own = found is not None and found.source is objects.source and found.object.dataset is not None
            return THIS_FILE if own else None
        domain = self._domain(one.file)
        if domain is None:
            return None
        try:
            item = self._type(external_domain(block_name(domain, 0), self._target), path)
        except (NotFound, Gone, Forbidden, BadRequest):
            return None
        varies = parse_type(item).is_vlen or parse_type(dataset.type.item).is_vlen
        return domain if not varies or item == dataset.type.item else None

    def _domain(self, file: str) -> str | None:
        """Return the name of a file's domain for the new layout, or None if the server has no such domain."""
        if file not in self._domains:
            names = [file, basename(file)] if file.startswith("/") else [file]
            places = [join(self._folder, name) for name in names]
            self._domains[file] = next((place for place in places if self._is_domain(place)), None)
        return self._domains[file]

    def _is_domain(self, place: str) -> bool:
        domain = external_domain(block_name(place, 0), self._target)
        self._before()
        try:
            return bool(self._server.json("GET", "/", domain=domain).get("root"))
        except (NotFound, Gone, Forbidden, BadRequest):
            return False

    def _type(self, domain: str, path: str) -> Any:
        """Return the type JSON of a dataset in a domain; raises `NotFound` if the dataset does not exist."""
        if (domain, path) not in self._types:
            params: Json = {
                "domain": domain,
                "h5path": f"/{path.lstrip('/')}",
                "follow_soft_links": 1,
                "follow_external_links": 1,
            }
            found = self._server.json("GET", "/datasets/", **params)["type"]
            self._types[domain, path] = {k: v for k, v in found.items() if k != "id"}
        return self._types[domain, path]
