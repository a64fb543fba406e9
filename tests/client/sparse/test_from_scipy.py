"""Matrices of scipy as sparse datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from hsparse.client.connection import Connection
from hsparse.client.errors import AlreadyExists, WrongType
from hsparse.client.group import Group
from hsparse.client.sparse.from_scipy import from_scipy


@pytest.fixture
def group(connection: Connection) -> Group:
    return Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia", "bsr", "lil"])
def test_stored_elements_are_defined(group: Group, kind: str) -> None:
    matrix = sp.random_array((40, 30), density=0.2, rng=np.random.default_rng(1)).astype("f4").asformat(kind)
    dataset = from_scipy(group, f"run/{kind}", matrix, chunks=(7, 50))
    assert dataset.name == f"/run/{kind}"
    assert group[f"run/{kind}"].id == dataset.id
    assert (dataset.chunks, dataset.dtype) == ((7, 30), np.dtype("f4"))
    coords, values = dataset.read()
    found = sp.coo_array((values, tuple(coords.T)), shape=(40, 30))
    assert (found != matrix.tocoo()).nnz == 0
    assert len(values) == matrix.tocsr().nnz


def test_zeros_stay_and_duplicates_are_added_up(group: Group) -> None:
    zeros: Any = sp.csr_array(([0, 2], [1, 0], [0, 1, 2]), shape=(2, 2))
    coords, values = from_scipy(group, "zeros", zeros).read()
    assert dict(zip(map(tuple, coords.tolist()), values.tolist(), strict=True)) == {(0, 1): 0, (1, 0): 2}
    twice: Any = sp.csr_array(([1, 2], [1, 1], [0, 2, 2]), shape=(2, 2))
    assert from_scipy(group, "twice", twice).read()[1].tolist() == [3]
    assert twice.nnz == 2, "the caller's matrix is as it was"


def test_what_cannot_be_stored_leaves_nothing(group: Group) -> None:
    with pytest.raises(WrongType, match="sparse array of scipy"):
        from_scipy(group, "x", np.zeros((2, 2)))
    from_scipy(group, "x", sp.eye_array(3, format="csr"))
    with pytest.raises(AlreadyExists):
        from_scipy(group, "x", sp.eye_array(4, format="csr"))
    assert list(group) == ["x"]
    assert group["x"].shape == (3, 3)  # type: ignore[union-attr]
