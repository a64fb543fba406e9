"""The form of a domain's file: the layout of sparse datasets, and the options of each layout."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Self, TypeVar

from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding, declared_encoding


class FileLayout(StrEnum):
    """The way sparse datasets are written. Everything else is the same in all layouts; HDF5 1.8 and later read it."""

    AUTO = "auto"
    """As a matrix group if attributes of the dataset (kept by imports) declare an encoding; else as in `STOCK`."""
    STOCK = "stock"
    """As chunked datasets with a fill value, each with a dataset of booleans that marks the defined elements."""
    STRUCTURED = "structured"
    """As structured chunks, which no HDF5 library except libhdf5's prototype can open."""


class VirtualForm(StrEnum):
    """The way virtual datasets are written.

    By default, dense virtual datasets stay virtual if the paths of their source files are relative. All others are
    copied: HDF5 has no sparse virtual datasets, and reads fill values where a source file is missing.
    """

    COPIED = "copied"
    """As ordinary datasets with the values that are read from the sources."""
    KEPT = "kept"
    """As HDF5 virtual datasets if they are dense; sparse virtual datasets are copied."""
    MAPPED = "mapped"
    """As mappings, even of sparse datasets. HDF5 cannot read sparse mappings: this form is for copies to hsparse."""


Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of a file: its layout and options. Raises `BadRequest` if an option does not fit the layout.

    `revision` is the revision of structured chunks, `matrices` the encoding of all sparse matrices in the stock layout
    (None: matrices are datasets). `virtual` is the form of virtual datasets, or None for the default of `VirtualForm`.
    """

    layout: FileLayout = FileLayout.STOCK
    revision: FormatRevision = NEWEST_REVISION
    matrices: MatrixEncoding | None = None
    virtual: VirtualForm | None = None

    def __post_init__(self) -> None:
        if self.revision is not NEWEST_REVISION and self.layout is not FileLayout.STRUCTURED:
            raise BadRequest(
                "The option revision selects the format of structured chunks: it needs layout=structured."
            )
        if self.matrices is not None and self.layout is not FileLayout.STOCK:
            raise BadRequest("matrices needs layout=stock: leave one of the two out.")
        if self.virtual is VirtualForm.MAPPED and self.layout is not FileLayout.STRUCTURED:
            raise BadRequest("virtual=mapped is for copies in hsparse: it needs layout=structured.")

    @classmethod
    def parse(
        cls,
        layout: str | None = None,
        revision: str | None = None,
        matrices: str | None = None,
        virtual: str | None = None,
    ) -> Self:
        """Parse the options' values, of which None and an empty text mean the default; `BadRequest` for unknown values.

        The default layout is `AUTO`, or `STOCK` if `matrices` is given.
        """
        encoding = _one_of("matrices", matrices, MatrixEncoding)
        return cls(
            _one_of("layout", layout, FileLayout) or (FileLayout.STOCK if encoding else FileLayout.AUTO),
            _one_of("revision", revision, FormatRevision) or NEWEST_REVISION,
            encoding,
            _one_of("virtual", virtual, VirtualForm),
        )

    def copies(self, layout: dict[str, Any]) -> bool:
        """Return whether the file has the values of a virtual dataset with this layout, instead of its mappings."""
        if self.virtual in (VirtualForm.COPIED, VirtualForm.MAPPED):
            return self.virtual is VirtualForm.COPIED
        is_far = any(one["file"].startswith("/") or "://" in one["file"] for one in layout["mappings"])
        return bool(layout.get("flags")) or (is_far and self.virtual is None)

    @property
    def is_structured(self) -> bool:
        return self.layout is FileLayout.STRUCTURED

    def encoding(self, record: dict[str, Any]) -> MatrixEncoding | None:
        """Return the matrix encoding of a dataset in the file, or None if it is not written as a matrix group."""
        found = declared_encoding(record) if self.layout is FileLayout.AUTO else self.matrices
        return found if found is not None and found.fits(record) else None

    @property
    def params(self) -> dict[str, str]:
        """The query parameters that request a file of this form: layout, and options that differ from the default."""
        found = {"layout": self.layout.value}
        if self.revision is not NEWEST_REVISION:
            found["revision"] = self.revision.value
        if self.matrices is not None:
            found["matrices"] = self.matrices.value
        if self.virtual is not None:
            found["virtual"] = self.virtual.value
        return found


def _one_of(name: str, given: str | None, choices: type[Choice]) -> Choice | None:
    if not given:
        return None
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise BadRequest(f"{name} must be one of {names}, not {given[:40]!r}.") from None


STOCK, STRUCTURED, AUTO = FileForm(), FileForm(FileLayout.STRUCTURED), FileForm(FileLayout.AUTO)
