"""Read the AnnData of a domain into memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hsparse.client.errors import InvalidValue
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import ANNDATA, ElementReader
from hsparse.client.memory_limit import check_total
from hsparse.client.progress import Progress
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.format.plan.file_form import FileForm

PARTS = ("X", "layers", "obs", "var", "obsm", "varm", "obsp", "varp", "uns", "raw")


def read_anndata(tree: DomainTree, progress: Progress = False) -> Any:
    """Return the AnnData of a domain, equal to the one that `anndata.read_h5ad` returns for its exported file."""
    tree.require_anndata()
    if tree.is_legacy:
        return read_by_file(tree)
    reader = ElementReader(tree)
    parts = [part for part in PARTS if part in tree]
    for part in parts:
        reader.want(part)
    reader.fetch(progress)
    return ANNDATA.load().AnnData(**{part: reader.element(part) for part in parts})


def read_by_file(tree: DomainTree) -> Any:
    """Download a domain's file and read it with AnnData, which reads all older formats of AnnData files.

    Raise `InvalidValue` for an AnnData below the root, and `ResultTooLarge` for a file above `connection.max_bytes`.
    """
    connection = tree.connection
    if connection.domain is None or not tree.name.endswith(connection.domain):
        raise InvalidValue(
            f"{tree.name} was written by AnnData before 0.7: such an AnnData can be read only at the root of a domain."
        )
    server = connection.for_domain(None)

    def check(done: int, total: int) -> None:
        remedy = "export it, and read it by anndata.read_h5ad(..., backed='r')"
        check_total(total, connection.max_bytes, "The file of the AnnData has", remedy)

    with TemporaryDirectory(prefix="hsparse-") as directory:
        target = Path(directory) / "domain.h5ad"
        DomainFile(server, connection.domain, FileForm.parse()).fetch(target, check)
        return ANNDATA.load().read_h5ad(target)
