"""Find a dataset in a file by its path, and read the index of its chunks."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from hsparse.errors import Corrupt, NotFound, Unsupported
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.messages.layout_message import PARAMETERS, SINGLE, SINGLE_FILTERED, ChunkedLayout
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset, parse_object
from hsparse.model.dataspace import dims_of, max_dims_of

MAX_CHUNK = 1024 * 1024 * 1024
"""The maximum size in bytes of a chunk; larger chunks are not decoded."""


def find_dataset(file: Hdf5File, path: str) -> Reads[ParsedDataset]:
    """Read the dataset at `path`, following hard links from the root group.

    Raises `NotFound`, naming the link, if a hard link is missing, or if the object is not a dataset.
    """
    address, passed = file.root, ""
    for name in filter(None, path.split("/")):
        found = yield from parse_object(file, address)
        passed += f"/{name}"
        target = next((link.target for link in found.links if link.name == name), None)
        if not isinstance(target, StoredHardLink):
            raise NotFound(f"The file has no hard link {passed!r}: check the path.")
        address = target.address
    found = yield from parse_object(file, address)
    if found.dataset is None:
        raise NotFound(f"The object {path!r} of the file is not a dataset: name a dataset.")
    return found.dataset


def read_dataset_chunks(file: Hdf5File, dataset: ParsedDataset, layout: ChunkedLayout) -> Reads[ChunkRecords]:
    """Read the chunk records of a dataset, whose chunked layout is `layout`.

    Raises `Corrupt`, or `Unsupported` if chunks exceed `MAX_CHUNK` bytes, or if addresses do not have 8 bytes.
    """
    if file.widths != (8, 8):
        raise Unsupported("The file's addresses or lengths do not have 8 bytes: rewrite it with h5repack.")
    size = dataset.type.size
    # Since version 4, some programs write a wrong size; HDF5 1.x ignores it and uses the type's size.
    if layout.item_size != size and layout.version < 4:
        raise Corrupt(f"The layout has elements of {layout.item_size} bytes, but the type has {size} bytes.")
    if (nbytes := prod(layout.dims) * size) > MAX_CHUNK:
        raise Unsupported(f"A chunk has {nbytes} bytes, more than {MAX_CHUNK}: use smaller ones (h5repack).")
    index = layout.index
    widths = PARAMETERS.get(index.kind, ())
    if index.kind == SINGLE and layout.flags & SINGLE_FILTERED:
        widths = (8, 4)
    found = IndexLayout(
        IndexKind(index.kind),
        layout.dims,
        max_dims_of(dataset.shape),
        size,
        bool(dataset.pipeline),
        message_version=layout.version,
        address=index.address,
        info=b"".join(
            value.to_bytes(width, "little") for value, width in zip(index.parameters, widths, strict=True)
        ),
        k=file.chunk_k,
    )
    extent = dims_of(dataset.shape) or ()
    records = yield from read_chunk_index(found, extent, file.size - file.base, file.base)
    # Some programs set all bits for unfiltered chunks; like HDF5, use only the bits of the pipeline's filters.
    meant = np.uint32((1 << len(dataset.pipeline)) - 1)
    return replace(records, mask=records.mask & meant)
