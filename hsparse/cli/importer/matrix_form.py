"""Groups of HDF5 files that are sparse matrices: AnnData's (`encoding-type`, and the older `h5sparse_format`) and
those of Binsparse.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html, https://graphblas.org/binsparse-specification
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hsparse.cli.importer.source import Source
from hsparse.errors import HsparseError
from hsparse.format.hdf5.hdf5_file import Hdf5File
from hsparse.format.hdf5.messages.group_messages import HardLink
from hsparse.format.hdf5.parse.parsed_elements import parse_elements
from hsparse.format.hdf5.parse.parsed_object import ParsedAttribute, ParsedObject
from hsparse.model.dataspace import dims_of
from hsparse.model.element import element_of
from hsparse.model.json_values import to_json

ANNDATA = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}
BINSPARSE = {"CSR": "csr", "CSC": "csc", "COO": "coo", "COOR": "coo", "COOC": "coo"}


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """A matrix of `shape`: `kind` is csr, csc or coo. The others are addresses of datasets.

    `indices` are the column (csr), the row (csc) or both (coo) of each element, `pointers` say where each row or
    column begins. `iso` says that there is one value, of all elements.
    """

    kind: str
    shape: tuple[int, int]
    values: int
    indices: tuple[int, ...]
    pointers: int | None = None
    iso: bool = False
    fill: int | None = None


def find_matrix(source: Source, file: Hdf5File, stored: ParsedObject) -> MatrixForm | None:
    """Return what a group is as a matrix, None where it is none, or one of a form that is not known."""
    attributes = {one.name: one for one in stored.attributes}
    members = {link.name: link.target.address for link in stored.links if isinstance(link.target, HardLink)}

    def value(name: str) -> Any:
        return _value(source, file, attributes[name]) if name in attributes else None

    try:
        if "binsparse" in attributes:
            return _binsparse(json.loads(value("binsparse")), members)
        kind = ANNDATA.get(value("encoding-type") or value("h5sparse_format"))
        shape = value("shape") or value("h5sparse_shape")
        if kind is None:
            return None
        return MatrixForm(kind, _shape(shape), members["data"], (members["indices"],), members["indptr"])
    except (KeyError, TypeError, ValueError):
        return None


def _binsparse(described: Any, members: dict[str, int]) -> MatrixForm | None:
    described = described.get("binsparse", described)
    kind = BINSPARSE.get(described["format"])
    types = described["data_types"]
    name = types["values"]
    iso = name.startswith("iso[")
    if kind is None or "complex" in name or described.get("structure", "general") != "general":
        return None
    shape, values = _shape(described["shape"]), members["values"]
    fill = members["fill_value"] if described.get("fill") is True else None
    if kind == "coo":
        return MatrixForm(kind, shape, values, (members["indices_0"], members["indices_1"]), None, iso, fill)
    return MatrixForm(kind, shape, values, (members["indices_1"],), members["pointers_to_1"], iso, fill)


def _shape(value: Any) -> tuple[int, int]:
    rows, columns = map(int, value)
    if min(rows, columns) < 1:
        raise ValueError("a matrix without elements stays what it is")
    return rows, columns


def _value(source: Source, file: Hdf5File, one: ParsedAttribute) -> Any:
    try:
        reads = parse_elements(file, one.type, one.data, dims_of(one.shape) or (), lambda _: None)
        return to_json(source.run(reads), element_of(one.type.item))
    except HsparseError:
        return None  # an attribute that cannot be read is none of these
