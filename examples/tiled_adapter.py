"""Show the arrays of a domain in Tiled, with this in the configuration of `tiled serve config`:

    trees: [{path: /, tree: "tiled_adapter:open_tree", args: {address: "http://HOST:5101/home/ann/run.h5"}}]

A sparse dataset is of Tiled's family `sparse`, its blocks are the chunks; a dense one is an array, and groups are
containers. Nothing is copied: what a client of Tiled asks for is read from hsparse by one request.
"""

from itertools import pairwise

import numpy as np
import sparse
from tiled.adapters.array import ArrayAdapter
from tiled.adapters.mapping import MapAdapter
from tiled.adapters.sparse import SparseAdapter
from tiled.structures.array import BuiltinDtype
from tiled.structures.sparse import COOStructure

import hsparse


def plain(attributes):
    """Return attributes as JSON has them."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in attributes.items()}


def block_lengths(length, chunk):
    return tuple(after - before for before, after in pairwise([*range(0, length, chunk), length])) or (0,)


class HsparseAdapter(SparseAdapter):
    """A sparse dataset of hsparse as Tiled reads it."""

    def __init__(self, dataset):
        self.dataset = dataset
        structure = COOStructure(
            chunks=tuple(map(block_lengths, dataset.shape, dataset.chunks)),
            shape=dataset.shape,
            data_type=BuiltinDtype.from_numpy_dtype(dataset.dtype),
            coord_data_type=BuiltinDtype.from_numpy_dtype(np.dtype("u8")),
        )
        super().__init__(structure, metadata=plain(dataset.attrs))

    def read(self, slice=...):
        return self._read([(0, length) for length in self.dataset.shape], slice)

    def read_block(self, block, slice=...):
        starts = [index * chunk for index, chunk in zip(block, self.dataset.chunks, strict=True)]
        stops = map(min, map(sum, zip(starts, self.dataset.chunks, strict=True)), self.dataset.shape)
        return self._read(list(zip(starts, stops, strict=True)), slice)

    def _read(self, box, key):
        coords, values = self.dataset.read(tuple(slice(*bounds) for bounds in box))
        origin, shape = [start for start, _ in box], tuple(stop - start for start, stop in box)
        found = sparse.COO((coords - np.array(origin, "u8")).T, values, shape)
        return found[key] if key else found


def adapter(member):
    if isinstance(member, hsparse.Group):
        return MapAdapter(
            {name: adapter(one) for name, one in member.items() if one is not None},
            metadata=plain(member.attrs),
        )
    return (
        HsparseAdapter(member)
        if isinstance(member, hsparse.SparseDataset)
        else ArrayAdapter.from_array(member[()])
    )


def open_tree(address):
    return adapter(hsparse.open(address, "r"))
