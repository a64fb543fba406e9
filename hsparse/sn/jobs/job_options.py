"""The options of jobs: flags of the commands `hsparse import` and `hsparse export` that make sense on a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_form import FileForm
from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.format.hdf5.format_revision import FormatRevision
from hsparse.format.hdf5.matrix_encoding import MatrixEncoding
from hsparse.model.link import check_title

MOST_REQUESTS = 64
LONGEST_NAME = 1024


class Kind(StrEnum):
    """What a job does, which is the name of its command."""

    IMPORT = "import"
    EXPORT = "export"


@dataclass(frozen=True, slots=True)
class Option:
    """What values an option may have: `fits` says whether one may be, `told` what they are."""

    fits: Callable[[Any], bool]
    told: str


def is_text(value: Any) -> bool:
    """Say whether a value of a body is text without control characters, as arguments of processes must be."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and not any(ord(c) < 32 for c in value)


TRUTH = Option(lambda value: isinstance(value, bool), "true or false")
NAME = Option(is_text, f"text of 1 to {LONGEST_NAME} characters, none of them a control character")
COUNT = Option(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_REQUESTS,
    f"a number from 1 to {MOST_REQUESTS}",
)


def one_of(choices: type[Enum]) -> Option:
    """Return an option whose values are those of an enumeration."""
    names = [choice.value for choice in choices]
    return Option(lambda value: value in names, f"one of {', '.join(names)}")


OPTIONS: dict[Kind, dict[str, Option]] = {
    Kind.IMPORT: {"resume": TRUTH, "as_is": TRUTH, "path": NAME, "requests": COUNT},
    Kind.EXPORT: {
        "layout": one_of(FileLayout),
        "revision": one_of(FormatRevision),
        "matrices": one_of(MatrixEncoding),
        "filter": NAME,
        "force": TRUTH,
        "resume": TRUTH,
    },
}
"""By the name of the flag, with `_` for `-`."""


def check_options(kind: Kind, options: Any) -> dict[str, Any]:
    """Return the options in a body; `BadRequest` for one that there is not, and for values that do not fit.

    Nor may they contradict each other, but for what only the file's place tells.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise BadRequest("options must be an object.")
    known = OPTIONS[kind]
    for name, value in options.items():
        if name not in known:
            raise BadRequest(f"{kind} has no option {name[:80]!r}; it has {', '.join(known)}.")
        if not known[name].fits(value):
            raise BadRequest(f"The option {name} must be {known[name].told}.")
    if "path" in options:
        check_title(options["path"])
    FileForm.parse(*map(options.get, ("layout", "revision", "matrices")))
    return options


def flags(kind: Kind, options: dict[str, Any]) -> list[str]:
    """Return the command's flags for checked options."""
    given = [(f"--{name.replace('_', '-')}", options[name]) for name in OPTIONS[kind] if name in options]
    return [
        flag if value is True else f"{flag}={value}"  # in one argument: a value may begin with a dash
        for flag, value in given
        if value is not False
    ]
