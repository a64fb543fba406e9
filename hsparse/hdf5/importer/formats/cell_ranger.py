"""Read Cell Ranger's `.h5` files: the group `matrix` or, in files of versions before 3, a group for each genome.

See https://www.10xgenomics.com/support/software/cell-ranger/latest/analysis/outputs/cr-outputs-h5-matrices. The file
has genes x cells compressed by columns, which equals cells x genes compressed by rows. The domain has the content that
`scanpy.read_10x_h5(..., gex_only=False)` returns.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.hdf5.importer.formats.domain_parts import DomainParts, anndata, float_matrix
from hsparse.hdf5.importer.formats.file_parts import FileParts

MATRIX = {"data", "indices", "indptr", "shape", "barcodes"}
FEATURES = {"id", "name", "feature_type"}
OLD = MATRIX | {"genes", "gene_names"}
TAGS = "_all_tag_keys"
"""The name of a dataset that lists the columns of features, and is not a column itself."""


def find_matrix(file: FileParts) -> list[str] | None:
    """Return the path of the matrix's group, or of each genome's group, or None for other files."""
    names = sorted(file.members())
    if file.members("matrix") >= MATRIX and file.members("matrix/features") >= FEATURES:
        return ["matrix"]
    return names if names and all(file.members(name) >= OLD for name in names) else None


def read_matrix(file: FileParts, part: str) -> DomainParts:
    """Return an AnnData of cells x features. The names of features need not be unique."""
    genes, cells = _shape(file, part)
    matrix = file.matrix("csr", (cells, genes), *(f"{part}/{name}" for name in ("data", "indices", "indptr")))
    if matrix.item["base"] == "H5T_STD_I32LE":
        matrix = float_matrix(matrix)
    parts = anndata(file.attributes())
    parts.add_matrix("X", matrix)
    filtered = f"{part}/filtered_barcodes"
    is_filtered = "filtered_barcodes" in file.members(part)
    columns = {"filtered_barcodes": file.array(filtered, cells).astype(bool)} if is_filtered else {}
    parts.add_frame("obs", file.array(f"{part}/barcodes", cells), columns)
    if "features" in file.members(part):
        features = {name: file.array(f"{part}/features/{name}", genes) for name in _columns(file, part)}
        parts.add_frame("var", features.pop("name"), _named(features))
        parts.left = file.unread(f"{part}/features/{TAGS}")
    else:
        gene_ids = file.array(f"{part}/genes", genes)
        parts.add_frame("var", file.array(f"{part}/gene_names", genes), {"gene_ids": gene_ids})
        parts.left = file.unread(below=f"{part}/")
    return parts


def _shape(file: FileParts, part: str) -> tuple[int, int]:
    genes, cells = (int(length) for length in file.array(f"{part}/shape", 2))
    if min(genes, cells) < 0:
        raise Corrupt(f"/{part}/shape: It is {genes} x {cells}.")
    return genes, cells


def _columns(file: FileParts, part: str) -> list[str]:
    return [name for name in file.datasets(f"{part}/features") if name != TAGS]


def _named(features: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the feature columns in scanpy's order and with scanpy's names; probes also have the id of their gene."""
    ids = features.pop("id")
    first = {"gene_ids": ids}
    if "gene_id" in features:
        first = {"gene_ids": features.pop("gene_id"), "probe_ids": ids}
    return {**first, "feature_types": features.pop("feature_type"), **features}
