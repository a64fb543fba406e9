"""Serve a virtual dataset of a file as a virtual dataset whose sources are domains of served places.

Sources are looked up for each read, so that a read sees a source's current state and checks the source's own access
rights. Names are resolved as in libhdf5: an absolute name to a file of a place, else in the folder of the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hsparse.errors import BadRequest
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage
from hsparse.hdf5.format.parse.mapping_json import mapping_json
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.format.parse.virtual_mapping import THIS_FILE, block_name, parse_virtual_mappings
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.in_place.folders import is_served_name, is_visible
from hsparse.hdf5.virtual_dataset.layouts import grows
from hsparse.hdf5.virtual_dataset.mappings import ERROR, FILL, MAX_MAPPINGS, checked_layout
from hsparse.model.dataspace import dims_of, is_extensible
from hsparse.model.layout import MAPPED, VIRTUAL
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.storage.object_store import is_key
from hsparse.wire.message import Record

Json = dict[str, Any]


def virtual_layout(objects: FileObjects, dataset: ParsedDataset, place: str) -> Json | None:
    """Return the layout JSON of a virtual dataset in a file of the place served as `place`.

    Returns None if the dataset is not virtual, if a source cannot be a domain, or if the server cannot represent the
    mappings. The caller then reads the dataset directly from the files; these reads report any error.
    """
    dims = dims_of(dataset.shape)
    if not isinstance(dataset.layout, VirtualLayoutMessage) or not dims:
        return None
    mappings = objects.source.run(parse_virtual_mappings(objects.file, dataset.layout))
    if len(mappings) > MAX_MAPPINGS:
        return None
    names = {file: _domain(objects, file, place) for file in dict.fromkeys(one.file for one in mappings)}
    found = [replace(one, file=name) for one in mappings if (name := names[one.file]) is not None]
    if len(found) < len(mappings):
        return None
    elsewhere = any(file.startswith("/") and not _is_beside(objects, file) for file in names)
    layout: Json = {
        "class": VIRTUAL,
        "mappings": list(map(mapping_json, found)),
        "missing": ERROR if elsewhere else FILL,
    }
    try:
        layout = checked_layout(layout, len(dims))
    except BadRequest:
        return None
    return layout if is_extensible(dataset.shape) or not grows(layout["mappings"]) else None


def as_virtual(record: Record, layout: Json) -> Record:
    """Return the record of a virtual dataset with this layout, based on the record of a chunked dataset."""
    endless = grows(layout["mappings"])
    data = {"grows": endless} | ({"dims": record["shape"]["dims"]} if endless else {})
    return record | {
        "layout": {"class": MAPPED, "layout": record["layout"]},
        "creationProperties": record["creationProperties"] | {"layout": layout},
        VIRTUAL_DATA: data,
    }


def _is_beside(objects: FileObjects, file: str) -> bool:
    """Return whether an absolute file name leads into a served place; otherwise libhdf5 may find a file elsewhere."""
    name, beside = block_name(file, 0), objects.source.name
    is_other = objects.files.in_other(name, beside) is not None
    return is_other or objects.files.in_place(name, beside, named=True) is not None


def _domain(objects: FileObjects, file: str, place: str) -> str | None:
    """Return the domain path of the file that a mapping names, or None if the file cannot be a domain."""
    if file == THIS_FILE:
        return file
    beside = objects.source.name
    found = objects.files.in_place(block_name(file, 0), beside)
    if (other := objects.files.in_other(block_name(file, 0), beside)) is not None:
        place, found = other
    if found is None or not is_visible(found):
        return None
    (above, _, pattern), (folder, _, name) = file.rpartition("/"), found.rpartition("/")
    if block_name(pattern, 0) != name or block_name(above, 0) != block_name(above, 1):
        return None
    if not is_key(found) or not is_served_name(name):
        return None
    # An absolute path leads nowhere on a client's machine, so exports contain the values instead of the mappings.
    return "/".join((*(one.replace("%", "%%") for one in (place, folder) if one), pattern))
