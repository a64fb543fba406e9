"""Mappings over the parts of a stored AnnData; assigning an element stores it: `f.obs["leiden"] = labels`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hsparse.client.errors import InvalidValue, MissingKey
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.integrations.anndata.domain_tree import DomainTree

TREE = OptionalModule("hsparse.client.integrations.anndata.domain_tree")
READER = OptionalModule("hsparse.client.integrations.anndata.element_reader")
ASSIGNMENT = OptionalModule("hsparse.client.integrations.anndata.element_assignment")
"""Modules that are imported on first use, because files without an AnnData do not need them."""
FRAMES = {"layers": ("obs", "var"), "obsm": ("obs",), "varm": ("var",)}
"""Maps each part to the data frames that label the leading dimensions of the part's arrays."""
Group: TypeAlias = Any
"""A `Group` of the client, whose module is not imported here because the import would be circular."""


def read_only(value: Any) -> Any:
    """Make a numpy array, Series or data frame raise `ValueError` when an element is assigned, and return it."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    # The pandas object that holds the arrays; the public attributes return copies and views of them.
    manager = getattr(value, "_mgr", None)
    for array in () if manager is None else manager.arrays:
        for part in (array, *(getattr(array, name, None) for name in ("_ndarray", "_data", "_mask"))):
            if isinstance(part, np.ndarray):
                part.flags.writeable = False
        if hasattr(array, "_readonly"):  # pandas 3
            array._readonly = True
    return value


class AnnDataPart(MutableMapping[str, Any]):
    """Names mapped to the columns of obs or var, or the arrays of layers, obsm or varm; each is read and written whole.

    >>> cells.obs
    <AnnDataPart obs of /home/admin/cells.h5ad>
    """

    def __init__(self, group: Group, part: str) -> None:
        """`group` is the group of the AnnData; `part` is obs, var, layers, obsm or varm."""
        self._group, self._part = group, part

    def __repr__(self) -> str:
        return f"<AnnDataPart {self._part} of {self._tree().name}>"

    def __getitem__(self, name: str) -> Any:
        """Return a column as a Series, or an array of the type that `to_anndata` returns, with two requests.

        The value is a read-only copy, because changing it would not change the file: change a `copy()` of the value and
        assign the copy. Only a sparse matrix is a writable copy. Raise `MissingKey` for an unknown name.

        >>> cells.obs["cell_type"].tolist()
        ['T', 'B', 'NK', 'T']
        >>> column = cells.obs["cell_type"]
        >>> column.iloc[0] = "B"
        Traceback (most recent call last):
        ValueError: assignment destination is read-only
        """
        if not isinstance(name, str):
            raise InvalidValue(f"{self._part} is indexed by a name: {self._part}['a']; {self._whole()}")
        tree = self._tree()
        if name not in self._names(tree):
            raise MissingKey(f"{self._part} of {tree.name} has no {name!r}; it has {self._names(tree)}.")
        reader = READER.load().ElementReader(tree)
        if self._is_frame:
            reader.want_frame(self._part, [name])
            reader.fetch()
            return read_only(reader.frame(self._part, [name])[name])
        reader.want(f"{self._part}/{name}")
        reader.fetch()
        return read_only(reader.element(f"{self._part}/{name}"))

    def __setitem__(self, name: str, value: Any) -> None:
        """Add or replace a column or an array; readers see the old value until the new value is stored.

        A Series is aligned by its labels. Raise `InvalidValue` for a wrong number of rows, and `WrongType` for a type
        that AnnData's files cannot hold; in both cases nothing changes.

        >>> f.write_anndata(adata, "rna")
        >>> f["rna"].obs["leiden"] = ["0", "1", "1", "0"]
        >>> f["rna"].obs["leiden"] = f["rna"].obs["leiden"].astype("category")
        >>> f.to_anndata("rna").obs["leiden"].cat.categories.tolist()
        ['0', '1']
        """
        tree = self._tree()
        tree.require_anndata()
        if tree.is_legacy:
            raise InvalidValue(f"{tree.name} was written by AnnData before 0.7: rewrite it by write_anndata.")
        if not self._is_frame:
            value = self._fitting(tree, name, value)
        ASSIGNMENT.load().assign_in_part(self._group, self._part, name, value, is_there=self._part in tree)

    def __delitem__(self, name: str) -> None:
        """Remove a column or an array.

        >>> f.write_anndata(adata, "rna")
        >>> del f["rna"].obs["n_genes"]
        >>> list(f["rna"].obs)
        ['cell_type']
        """
        del self._group[f"{self._part}/{name}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names(self._tree()))

    def __len__(self) -> int:
        return len(self._names(self._tree()))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an `AttributeError` with a hint of how to read the whole part."""
            raise AttributeError(f"{self._part} of a file has no attribute {name}; {self._whole()}")

    def _whole(self) -> str:
        """Return a sentence that says how to read the whole part."""
        path = self._group.name.strip("/")
        place = f"path={path!r}" if path else ""
        return f"f.query({place}).{self._part} returns a copy of the whole part."

    @property
    def _is_frame(self) -> bool:
        return self._part in ("obs", "var")

    def _tree(self) -> DomainTree:
        """Request the current records of the AnnData's objects, and return them as a tree."""
        tree: DomainTree = TREE.load().DomainTree(self._group.connection, self._group.records())
        tree.name += self._group.name.rstrip("/")
        return tree

    def _names(self, tree: DomainTree) -> list[str]:
        if not self._is_frame:
            return tree.children(self._part)
        found: list[str] = READER.load().ElementReader(tree).columns(self._part)
        return found

    def _fitting(self, tree: DomainTree, name: str, value: Any) -> Any:
        """Return `value` as an array of this part; raise `InvalidValue` if its shape or index does not fit."""
        value = value if hasattr(value, "shape") else np.asarray(value)
        frames = FRAMES[self._part]
        wanted = [tree.frame_length(frame) for frame in frames]
        if list(value.shape[: len(frames)]) != wanted or (self._part == "layers" and value.ndim != 2):
            raise InvalidValue(
                f"{self._part}/{name} has the shape {list(value.shape)}, but {' and '.join(frames)} of {tree.name} "
                f"have {' and '.join(map(str, wanted))} rows: give a value for each row."
            )
        if hasattr(value, "iloc"):
            reader = READER.load().ElementReader(tree)
            reader.want_frame(frames[0], [])
            reader.fetch()
            if list(value.index) != reader.index(frames[0]).tolist():
                raise InvalidValue(
                    f"{self._part}/{name} has another index than {frames[0]}: use the labels of {frames[0]} in order."
                )
        return value
