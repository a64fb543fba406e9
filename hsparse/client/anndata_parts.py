"""The parts (obs, var, layers, obsm, varm) of an AnnData that is stored in a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.client.integrations.anndata.anndata_part import AnnDataPart

PART = OptionalModule("hsparse.client.integrations.anndata.anndata_part")


class AnnDataParts:
    """The properties of a group for the parts of the AnnData that the group stores; a base class of `Group`."""

    @property
    def obs(self) -> AnnDataPart:
        """A mapping from the name of each column of obs to an array, or to a Series or categorical of pandas.

        >>> f.write_anndata(adata, "rna")
        >>> f["rna"].obs["score"] = [0.5, 1.5, 2.5, 3.5]
        >>> list(f["rna"].obs), f["rna"].obs["score"].tolist()
        (['cell_type', 'n_genes', 'score'], [0.5, 1.5, 2.5, 3.5])
        """
        return self._anndata_part("obs")

    @property
    def var(self) -> AnnDataPart:
        """A mapping from the name of each column of var to an array, or to a Series or categorical of pandas.

        >>> list(cells.var)
        []
        """
        return self._anndata_part("var")

    @property
    def layers(self) -> AnnDataPart:
        """A mapping from the name of each layer to a matrix of the same shape as X.

        >>> f.write_anndata(adata, "rna")
        >>> f["rna"].layers["counts"] = adata.X * 2
        >>> (f["rna"].layers["counts"] != adata.X * 2).nnz
        0
        """
        return self._anndata_part("layers")

    @property
    def obsm(self) -> AnnDataPart:
        """A mapping from names to arrays that have one row for each cell.

        >>> f.write_anndata(adata, "rna")
        >>> f["rna"].obsm["X_umap"] = np.zeros((4, 2))
        >>> f["rna"].obsm["X_umap"] = np.ones((4, 2))
        >>> f["rna"].obsm["X_umap"].tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
        """
        return self._anndata_part("obsm")

    @property
    def varm(self) -> AnnDataPart:
        """A mapping from names to arrays that have one row for each gene.

        >>> len(cells.varm)
        0
        """
        return self._anndata_part("varm")

    def _anndata_part(self, name: str) -> AnnDataPart:
        part: AnnDataPart = PART.load().AnnDataPart(self, name)
        return part
