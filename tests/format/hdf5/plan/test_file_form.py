"""Forms of files: names of the API, and combinations that are refused."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.format.format_revision import NEWEST_REVISION, FormatRevision
from hsparse.format.hdf5.plan.file_form import STOCK, STRUCTURED, FileForm, FileLayout
from hsparse.format.hdf5.plan.matrix_encoding import MatrixEncoding
from hsparse.sn.openapi import specification


def test_the_names_are_those_that_clients_are_told() -> None:
    told = specification()["components"]["parameters"]["layout"]["schema"]
    assert told["enum"] == [layout.value for layout in FileLayout]
    assert told["default"] == FileLayout.STOCK.value


FORMS = [
    STOCK,
    *(FileForm(matrices=encoding) for encoding in MatrixEncoding),
    *(FileForm(FileLayout.STRUCTURED, revision) for revision in FormatRevision),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.params.values()))
def test_parameters_name_a_form(form: FileForm) -> None:
    assert FileForm.parse(**form.params) == form


def test_defaults() -> None:
    assert FileForm.parse() == FileForm.parse("", "", "") == STOCK
    assert FileForm.parse("structured", NEWEST_REVISION.value) == STRUCTURED
    assert STOCK.params == {"layout": "stock"}
    assert len({tuple(form.params.values()) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layout": "flat"}, "layout must be one of stock, structured, not 'flat'"),
        ({"layout": "structured", "revision": "new"}, "revision must be one of rfc-2023-07, .* not 'new'"),
        ({"matrices": "csr"}, "matrices must be one of anndata-csr, .* not 'csr'"),
        ({"revision": "rfc-2025-10"}, "goes with layout=structured"),
        ({"layout": "structured", "matrices": "anndata-csr"}, "leave one of the two out"),
    ],
)
def test_what_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        FileForm.parse(**given)
