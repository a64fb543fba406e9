"""Compressed matrices of every form that a read has, against scipy's."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

from hsparse.client.integrations.anndata.compressed_matrix import compressed_matrix
from hsparse.client.sources.elements import Elements
from hsparse.client.sparse.compressed_rows import CompressedRows

DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 7]], np.float32)
ROWS = sp.csr_array(DENSE)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("form", ["elements", "big endian elements", "rows", "arrays"])
def test_each_form_is_the_matrix_as_anndata_has_it(form: str, kind: str, arrays: bool) -> None:
    own = ROWS.asformat(kind)
    parts: Any = {
        "elements": Elements(tuple(np.nonzero(DENSE)), DENSE[DENSE != 0]),
        "big endian elements": Elements(tuple(np.nonzero(DENSE)), DENSE[DENSE != 0].astype(">f4")),
        "rows": CompressedRows((3, 4), ROWS.indptr, ROWS.indices, ROWS.data),
        "arrays": (own.data, own.indices, own.indptr),
    }[form]
    with anndata.settings.override(use_sparse_array_on_read=arrays):
        found = compressed_matrix(parts, (3, 4), kind)
    assert type(found) is getattr(sp, f"{kind}_{'array' if arrays else 'matrix'}")
    assert found.has_sorted_indices
    assert found.dtype == np.dtype("=f4")
    np.testing.assert_array_equal(found.toarray(), DENSE)
