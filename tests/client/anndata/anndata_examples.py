"""AnnDatas of all that their files may have, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

ROWS, COLUMNS = 60, 23


def matrix(
    seed: int, shape: tuple[int, int] = (ROWS, COLUMNS), kind: str = "csr", dtype: str = "f4"
) -> sp.spmatrix:
    rng = np.random.default_rng(seed)
    found = sp.random(*shape, density=0.2, format=kind, random_state=rng, dtype="f8")
    found.data = np.ceil(found.data * 50).astype(dtype)
    return found


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def frame(prefix: str, count: int) -> pd.DataFrame:
    return pd.DataFrame(index=names(prefix, count))


def plain() -> AnnData:
    return AnnData(matrix(1), obs=frame("cell", ROWS), var=frame("gene", COLUMNS))


def column_kinds() -> AnnData:
    """Columns of every kind, an index with a name, categories of several types, some of them missing."""
    data = plain()
    rng = np.random.default_rng(2)
    obs = data.obs
    obs["cell type"] = pd.Categorical(
        rng.choice(["B cell", "T cell", "naïve"], ROWS), categories=["naïve", "T cell", "B cell"]
    )
    obs["stage"] = pd.Categorical.from_codes(
        rng.integers(-1, 3, ROWS), ["early", "mid", "late"], ordered=True
    )
    obs["cluster"] = pd.Categorical(rng.choice([3, 1, 2], ROWS))
    obs["n_genes"] = rng.integers(0, 1000, ROWS)
    obs["small"] = rng.integers(0, 9, ROWS).astype("u1")
    obs["score"] = rng.normal(size=ROWS).astype("f4")
    obs.loc["cell3", "score"] = np.nan
    obs["is_primary"] = rng.random(ROWS) < 0.5
    obs["donor"] = rng.choice(["a", "", "ü" * 40], ROWS)
    obs["age"] = pd.array([None if n % 7 == 0 else n for n in range(ROWS)], dtype="Int32")
    obs["smoker"] = pd.array([None if n % 5 == 0 else n % 2 == 0 for n in range(ROWS)], dtype="boolean")
    obs.index.name = "barcode"
    data.var["order of columns"] = np.arange(COLUMNS)[::-1]
    data.var["a"] = names("x", COLUMNS)
    return data


def layers() -> AnnData:
    data = plain()
    data.layers["counts"] = matrix(3, dtype="i4")
    data.layers["by gene"] = matrix(4, kind="csc")
    data.layers["dense"] = np.random.default_rng(5).random((ROWS, COLUMNS))
    return data


def dimensions() -> AnnData:
    """Arrays, matrices and a frame in obsm, varm, obsp and varp."""
    data = plain()
    rng = np.random.default_rng(6)
    data.obsm["X_pca"] = rng.random((ROWS, 4)).astype("f4")
    data.obsm["cube"] = rng.integers(0, 9, (ROWS, 2, 3)).astype("i2")
    data.obsm["sparse"] = matrix(7, (ROWS, 5))
    data.obsm["table"] = pd.DataFrame(
        {"x": rng.random(ROWS), "y": pd.Categorical(rng.choice(["p", "q"], ROWS))}, index=data.obs_names
    )
    data.varm["PCs"] = rng.random((COLUMNS, 4))
    data.obsp["distances"] = matrix(8, (ROWS, ROWS), dtype="f8")
    data.obsp["dense"] = rng.random((ROWS, ROWS))
    data.varp["by gene"] = matrix(9, (COLUMNS, COLUMNS), "csc")
    return data


def unstructured() -> AnnData:
    data = plain()
    data.uns = {
        "text": "ünïcode",
        "empty": "",
        "number": 7,
        "float": np.float32(0.5),
        "yes": True,
        "complex": np.complex128(1 + 2j),
        "nothing": None,
        "colors": np.array(["#ff0000", "#00ff00"]),
        "waves": np.array([1 + 1j, 2 - 3j]),
        "table": pd.DataFrame({"a": [1, 2]}, index=["r", "s"]),
        "matrix": matrix(10, (3, 4)),
        "none": {},
        "nested": {"deep": {"deeper": np.arange(3)}, "list": [1, 2, 3], "flags": np.array([True, False])},
        "rank_genes_groups": {
            "names": np.rec.fromarrays([["CD3E", "NKG7"], ["LYZ", ""]], names="0,1"),
            "scores": np.rec.fromarrays([[1.5, 2.5], [0.5, 1.0]], names="0,1"),
        },
        "large": np.arange(40_000.0).reshape(200, 200),
        "many texts": np.array(names("text ", 3000), object),
    }
    return data


def with_raw() -> AnnData:
    data = plain()
    data.var["n"] = np.arange(COLUMNS)
    data.raw = data.copy()
    data = data[:, ::2].copy()
    data.X = data.X.toarray()
    return data


def by_gene() -> AnnData:
    return AnnData(matrix(11, kind="csc", dtype="i8"), obs=frame("c", ROWS), var=frame("g", COLUMNS))


def dense() -> AnnData:
    return AnnData(
        np.random.default_rng(12).random((ROWS, COLUMNS)).astype("f4"),
        obs=frame("c", ROWS),
        var=frame("g", COLUMNS),
    )


def empty() -> AnnData:
    """No rows, and elements that have none."""
    data = AnnData(sp.csr_matrix((0, 5), dtype="f4"), obs=frame("c", 0), var=frame("g", 5))
    data.obs["n"] = np.zeros(0, int)
    data.obs["kind"] = pd.Categorical([], categories=["a", "b"])
    data.obsm["X_pca"] = np.zeros((0, 2))
    data.layers["dense"] = np.zeros((0, 5))
    return data


def without_x() -> AnnData:
    data = AnnData(obs=frame("c", 4), var=frame("g", 0))
    data.obs["mask"] = [True, False, True, True]
    return data


def without_elements() -> AnnData:
    """A matrix of which no element is stored, and one with zeros that are."""
    data = AnnData(sp.csr_matrix((ROWS, COLUMNS), dtype="f4"), obs=frame("c", ROWS), var=frame("g", COLUMNS))
    zeros = matrix(13)
    zeros.data[::2] = 0
    data.layers["zeros"] = zeros
    return data


EXAMPLES: dict[str, Callable[[], AnnData]] = {
    make.__name__: make
    for make in (
        plain, column_kinds, layers, dimensions, unstructured, with_raw, by_gene, dense, empty, without_x,
        without_elements,
    )
}  # fmt: skip
