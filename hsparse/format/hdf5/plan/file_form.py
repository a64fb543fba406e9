"""The form in which a domain becomes a file: its layout, and the options of that layout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.format.hdf5.plan.matrix_encoding import MatrixEncoding, declared_encoding


class FileLayout(StrEnum):
    """How sparse datasets are written; all else is the same, and read by HDF5 1.8 and later."""

    AUTO = "auto"
    """As matrices those whose attributes declare one, as an import of AnnData leaves them; others as in `STOCK`."""
    STOCK = "stock"
    """As chunked datasets with a fill value, each with a dataset of booleans: whether an element is defined."""
    STRUCTURED = "structured"
    """As their structured chunks, which the library's prototype reads and others refuse, dataset by dataset."""


Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True, slots=True)
class FileForm:
    """A layout; the `revision` of its structured chunks; what all sparse `matrices` become in the stock layout.

    `BadRequest` for parameters that the layout does not have.
    """

    layout: FileLayout = FileLayout.STOCK
    revision: FormatRevision = NEWEST_REVISION
    matrices: MatrixEncoding | None = None

    def __post_init__(self) -> None:
        if self.revision is not NEWEST_REVISION and self.layout is not FileLayout.STRUCTURED:
            raise BadRequest(
                "revision says how structured chunks are written: it goes with layout=structured."
            )
        if self.matrices is not None and self.layout is not FileLayout.STOCK:
            raise BadRequest("matrices are groups in layout=stock: leave one of the two out.")

    @classmethod
    def parse(
        cls, layout: str | None = None, revision: str | None = None, matrices: str | None = None
    ) -> Self:
        """Make it from its names, each None or empty for the default; `BadRequest` for a name that is none.

        The default layout is `AUTO`, or `STOCK` where all matrices are to have one encoding.
        """
        encoding = _one_of("matrices", matrices, MatrixEncoding)
        return cls(
            _one_of("layout", layout, FileLayout) or (FileLayout.STOCK if encoding else FileLayout.AUTO),
            _one_of("revision", revision, FormatRevision) or NEWEST_REVISION,
            encoding,
        )

    @property
    def is_structured(self) -> bool:
        return self.layout is FileLayout.STRUCTURED

    def encoding(self, record: dict[str, Any]) -> MatrixEncoding | None:
        """Return the encoding that a dataset has in the file, None for one that stays a dataset."""
        found = declared_encoding(record) if self.layout is FileLayout.AUTO else self.matrices
        return found if found is not None and found.fits(record) else None

    @property
    def params(self) -> dict[str, str]:
        """The parameters of a request for such a file, those with their default values left out but the layout."""
        found = {"layout": self.layout.value}
        if self.revision is not NEWEST_REVISION:
            found["revision"] = self.revision.value
        if self.matrices is not None:
            found["matrices"] = self.matrices.value
        return found


STOCK, STRUCTURED, AUTO = FileForm(), FileForm(FileLayout.STRUCTURED), FileForm(FileLayout.AUTO)


def _one_of(name: str, given: str | None, choices: type[Choice]) -> Choice | None:
    if not given:
        return None
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise BadRequest(f"{name} must be one of {names}, not {given[:40]!r}.") from None
