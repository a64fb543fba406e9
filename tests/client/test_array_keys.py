"""Every form of key, over every way to a dataset, of ranks 1 to 4: what numpy and scipy return.

The forms themselves, without datasets, are in tests/client/indexing/test_index_key.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsparse.client.sparse_dataset import SparseDataset
from tests.client.dataset_access import DatasetAccess, Model
from tests.client.indexing.fitting_keys import key_forms, keys_of, orthogonal_forms, orthogonal_keys_of
from tests.client.indexing.key_strategies import numpy_key, take_orthogonal

SHAPES: dict[int, tuple[int, ...]] = {1: (11,), 2: (6, 5), 3: (3, 4, 5), 4: (3, 2, 4, 3)}
CHUNKS: dict[int, tuple[int, ...]] = {1: (4,), 2: (4, 3), 3: (2, 4, 3), 4: (2, 2, 3, 3)}
DTYPES = ("f4", "?", "i1", ">f8", "u8", "f2", "i4", "u2", ">i2", "i8", "u1", "f8", "u4", ">u8", "i2", ">f4")


class Samples:
    """Datasets of a rank, one of each type, made when they are asked for, and what they should be."""

    def __init__(self, access: DatasetAccess, rank: int) -> None:
        self.access = access
        self.rank = rank
        self.made: dict[str, tuple[Model, SparseDataset]] = {}

    def of(self, dtype: str) -> tuple[Model, SparseDataset]:
        if dtype not in self.made:
            model = Model.random(SHAPES[self.rank], dtype, self.rank)
            add_extremes(model)
            self.made[dtype] = model, self.access.filled(model, self.chunks())
        return self.made[dtype]

    def chunks(self) -> tuple[int, ...]:
        """Return chunks that divide two dimensions; in a bucket, where each is a request, one."""
        chunks = CHUNKS[self.rank]
        return (*chunks[:1], *SHAPES[self.rank][1:]) if self.access.way in ("s3", "presigned") else chunks

    def check_ways(self) -> None:
        for model, dataset in self.made.values():
            check_equal(dataset[...], model.values, model.is_defined)
            self.access.check_way(dataset)


def add_extremes(model: Model) -> None:
    """Make the first two defined values the least and the greatest of their type."""
    dtype = model.values.dtype
    if dtype.kind != "b":
        limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        for place, value in zip(np.argwhere(model.is_defined), (limits.min, limits.max), strict=False):
            model.values[tuple(place)] = value


def check_equal(found: Any, wanted: Any, is_defined: Any, fill: Any = 0) -> None:
    """See that what a key returned has the values, the shape, the dtype and the stored elements that it should."""
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype.newbyteorder("=")
    assert found.shape == wanted.shape
    if isinstance(found, np.generic | np.ndarray):
        assert np.array_equal(found, wanted)
        return
    stored = np.zeros(wanted.shape, bool)
    if isinstance(found, sparse.COO):
        assert found.fill_value == fill
        assert np.array_equal(found.todense(), wanted)
        stored[tuple(found.coords)] = True
    else:
        assert np.array_equal(found.toarray(), wanted)
        coo = found.tocoo()
        stored[coo.coords] = True
        index = found.indices if found.format == "csr" else found.coords[0]
        assert index.dtype == np.int32
        if found.format == "csr":
            check = sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
            assert check.has_canonical_format
    assert np.array_equal(stored, is_defined)
    assert found.nnz == np.sum(is_defined)


def check_class(found: Any, model: Model, key: Any) -> None:
    """See that the result is of the class that scipy returns; where it has none, a COO."""
    native = model.values.dtype.newbyteorder("=")
    like = None if native == np.float16 else scipy_result(model, key, native)
    if like is not None:
        assert (found.shape, found.dtype) == (like.shape, like.dtype)
    if np.ndim(found) == 2 and native != np.float16:  # scipy has a coo_array for a 2-D list beside an index
        assert isinstance(found, sp.csr_array)
    elif like is not None:
        assert type(found) is type(like)
    elif np.ndim(found):
        assert isinstance(found, sparse.COO)


def scipy_result(model: Model, key: Any, dtype: np.dtype[Any]) -> Any:
    """Return what scipy returns for a key of a matrix, None for a key that it does not take."""
    if model.values.ndim != 2:
        return None
    coords = np.nonzero(model.is_defined)
    csr = sp.csr_array((model.values[coords].astype(dtype), coords), shape=model.values.shape)
    try:
        return csr[numpy_key(key)]
    except (IndexError, ValueError):  # more than 2 dimensions; a list beside a negative step
        return None


def forms(dtypes: list[str], keys: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments with each key, of one type after the other."""
    for number, key in enumerate(keys):
        yield {"dtype": dtypes[number % len(dtypes)], "key": key, "is_dense": number % 3 == 0}


@pytest.mark.endurance
@pytest.mark.parametrize("rank", SHAPES)
def test_keys_return_what_scipy_and_numpy_return(dataset_access: DatasetAccess, rank: int) -> None:
    samples, dtypes = Samples(dataset_access, rank), dataset_access.some(DTYPES, rank)

    @settings(max_examples=dataset_access.examples(120, short=16), deadline=None)
    @given(dtype=st.sampled_from(dtypes), key=keys_of(SHAPES[rank]), is_dense=st.booleans())
    def check(dtype: str, key: Any, is_dense: bool) -> None:
        model, dataset = samples.of(dtype)
        try:
            wanted, is_defined = model.values[numpy_key(key)], model.is_defined[numpy_key(key)]
        except IndexError:
            with pytest.raises(IndexError):
                dataset[key]
            return
        try:
            found = dataset[key]
        except IndexError:
            assert not wanted.size, (
                "numpy lets an index pass that is beyond the extent, if nothing is selected"
            )
            return
        check_equal(found, wanted, is_defined)
        check_class(found, model, key)
        if is_dense:
            dense = dataset.to_numpy(key)
            assert dense.dtype == model.values.dtype
            assert np.array_equal(dense, wanted)

    for arguments in forms(dtypes, key_forms(SHAPES[rank])):
        check = example(**arguments)(check)
    check()
    samples.check_ways()


@pytest.mark.endurance
@pytest.mark.parametrize("rank", SHAPES)
def test_orthogonal_keys_return_products(dataset_access: DatasetAccess, rank: int) -> None:
    samples, dtypes = Samples(dataset_access, rank), dataset_access.some(DTYPES, rank + len(SHAPES))

    @settings(max_examples=dataset_access.examples(60, short=8), deadline=None)
    @given(dtype=st.sampled_from(dtypes), key=orthogonal_keys_of(SHAPES[rank]), is_dense=st.booleans())
    def check(dtype: str, key: Any, is_dense: bool) -> None:
        model, dataset = samples.of(dtype)
        try:
            wanted = take_orthogonal(model.values, key)
        except IndexError:
            with pytest.raises(IndexError):
                dataset.oindex[key]
            return
        check_equal(dataset.oindex[key], wanted, take_orthogonal(model.is_defined, key))
        if is_dense:
            assert np.array_equal(dataset.to_numpy(dataset.oindex.key(key)), wanted)

    for arguments in forms(dtypes, orthogonal_forms(SHAPES[rank])):
        check = example(**arguments)(check)
    check()
    samples.check_ways()
