"""Forms of files: names of the API, and combinations that are refused."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.format.plan.file_form import AUTO, STOCK, STRUCTURED, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.sn.about import specification


def test_the_names_are_those_that_clients_are_told() -> None:
    told = specification()["components"]["parameters"]["layout"]["schema"]
    assert told["enum"] == [layout.value for layout in FileLayout]
    assert told["default"] == FileLayout.AUTO.value


FORMS = [
    AUTO,
    STOCK,
    *(FileForm(matrices=encoding) for encoding in MatrixEncoding),
    *(FileForm(FileLayout.STRUCTURED, revision) for revision in FormatRevision),
]


def test_defaults() -> None:
    assert FileForm.parse() == FileForm.parse("", "", "") == AUTO
    assert FileForm.parse("structured", NEWEST_REVISION.value) == STRUCTURED
    assert FileForm.parse(matrices="anndata-csr") == FileForm(matrices=MatrixEncoding.ANNDATA_CSR)
    assert STOCK.params == {"layout": "stock"}
    assert AUTO.params == {"layout": "auto"}
    assert len({tuple(form.params.values()) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layout": "flat"}, "layout must be one of auto, stock, structured, not 'flat'"),
        ({"layout": "structured", "revision": "new"}, "revision must be one of rfc-2023-07, .* not 'new'"),
        ({"matrices": "csr"}, "matrices must be one of anndata-csr, .* not 'csr'"),
        ({"revision": "rfc-2025-10"}, "needs layout=structured"),
        ({"layout": "structured", "matrices": "anndata-csr"}, "leave one of the two out"),
        ({"layout": "auto", "matrices": "anndata-csr"}, "leave one of the two out"),
    ],
)
def test_what_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        FileForm.parse(**given)
