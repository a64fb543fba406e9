"""AnnData objects of domains."""

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
from hsparse.hdf5.format.plan.file_plan import FileForm

PARTS = ("X", "layers", "obs", "var", "obsm", "varm", "obsp", "varp", "uns", "raw")


def read_anndata(tree: DomainTree, progress: Progress = False) -> Any:
    """Return the AnnData of a domain, equal to what `anndata.read_h5ad` returns of its file."""
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
    """Return the AnnData of a domain by its file, which AnnData reads itself: it knows all its older forms.

    `ResultTooLarge` for a file of more than `connection.max_bytes`: what is in it has more.
    """
    connection = tree.connection
    if connection.domain is None or not tree.name.endswith(connection.domain):
        raise InvalidValue(
            f"{tree.name} has an AnnData of before 0.7, which is read only at the root of a domain."
        )
    server = connection.for_domain(None)

    def check(done: int, total: int) -> None:
        remedy = "export it, and read it by anndata.read_h5ad(..., backed='r')"
        check_total(total, connection.max_bytes, "The file of the AnnData has", remedy)

    with TemporaryDirectory(prefix="hsparse-") as directory:
        target = Path(directory) / "domain.h5ad"
        DomainFile(server, connection.domain, FileForm.parse()).fetch(target, check)
        return ANNDATA.load().read_h5ad(target)
