"""Parts of an AnnData as mappings whose elements are replaced in place: `f.obs["leiden"] = labels`."""

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
WRITER = OptionalModule("hsparse.client.integrations.anndata.element_writer")
"""Imported when they are used: files that are no AnnData need none of it."""
FRAMES = {"layers": ("obs", "var"), "obsm": ("obs",), "varm": ("var",)}
"""The data frame whose rows the first dimensions of an array have."""
Group: TypeAlias = Any
"""A group of the client, which imports this when it is used."""


class AnnDataPart(MutableMapping[str, Any]):
    """The columns of obs or var, or the arrays of layers, obsm or varm, by name: read and written whole.

    >>> cells.obs
    <AnnDataPart obs of /home/admin/cells.h5ad>
    """

    def __init__(self, group: Group, part: str) -> None:
        """`group` is that of the AnnData."""
        self._group, self._part = group, part

    def __repr__(self) -> str:
        return f"<AnnDataPart {self._part} of {self._tree().name}>"

    def __getitem__(self, name: str) -> Any:
        """Return a column as a Series, or an array as `to_anndata` has it; two requests.

        >>> cells.obs["cell_type"].tolist()
        ['T', 'B', 'NK', 'T']
        """
        tree = self._tree()
        if name not in self._names(tree):
            raise MissingKey(f"{self._part} of {tree.name} has no {name!r}; there are {self._names(tree)}.")
        reader = READER.load().ElementReader(tree)
        if self._is_frame:
            reader.want_frame(self._part, [name])
            reader.fetch()
            return reader.frame(self._part, [name])[name]
        reader.want(f"{self._part}/{name}")
        reader.fetch()
        return reader.element(f"{self._part}/{name}")

    def __setitem__(self, name: str, value: Any) -> None:
        """Add a column or an array, or replace that of the name; others see the old one until all is stored.

        A Series is arranged by its labels. `InvalidValue` for another number of rows, `WrongType` for what AnnData's
        files have no form for; then nothing is changed.

        >>> f.write_anndata(adata, "rna")
        >>> f["rna"].obs["leiden"] = ["0", "1", "1", "0"]
        >>> f["rna"].obs["leiden"] = f["rna"].obs["leiden"].astype("category")
        >>> f.to_anndata("rna").obs["leiden"].cat.categories.tolist()
        ['0', '1']
        """
        tree = self._tree()
        tree.require_anndata()
        if tree.is_legacy:
            raise InvalidValue(f"{tree.name} has an AnnData of before 0.7: write it anew by write_anndata.")
        if not self._is_frame:
            value = self._fitting(tree, name, value)
        WRITER.load().assign_in_part(self._group, self._part, name, value, is_there=self._part in tree)

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

    @property
    def _is_frame(self) -> bool:
        return self._part in ("obs", "var")

    def _tree(self) -> DomainTree:
        """Return the objects of the AnnData, as they are now."""
        tree: DomainTree = TREE.load().DomainTree(self._group.connection, self._group.records())
        tree.name += self._group.name.rstrip("/")
        return tree

    def _names(self, tree: DomainTree) -> list[str]:
        if not self._is_frame:
            return tree.children(self._part)
        found: list[str] = READER.load().ElementReader(tree).columns(self._part)
        return found

    def _fitting(self, tree: DomainTree, name: str, value: Any) -> Any:
        """Return an array of this part; `InvalidValue` if it has not the rows, or columns, of the AnnData."""
        value = value if hasattr(value, "shape") else np.asarray(value)
        frames = FRAMES[self._part]
        wanted = [tree.frame_length(frame) for frame in frames]
        if list(value.shape[: len(frames)]) != wanted or (self._part == "layers" and value.ndim != 2):
            raise InvalidValue(
                f"{self._part}/{name} has the shape {list(value.shape)}, but {' and '.join(frames)} of {tree.name} "
                f"have {' and '.join(map(str, wanted))} rows: give a value for each of them."
            )
        if hasattr(value, "iloc"):
            reader = READER.load().ElementReader(tree)
            reader.want_frame(frames[0], [])
            reader.fetch()
            if list(value.index) != reader.index(frames[0]).tolist():
                raise InvalidValue(
                    f"{self._part}/{name} has not the index of {frames[0]}: give it that, in its order."
                )
        return value
