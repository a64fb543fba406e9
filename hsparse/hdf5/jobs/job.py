"""A job: an import, export or copy that the server runs, its options and its record.

Options are the flags of `hsparse import` and `hsparse export` that make sense on a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from hsparse.errors import BadRequest, ErrorKind
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.plan.file_plan import EXPORTED, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.importer.upload import UPLOAD
from hsparse.model.link import check_title
from hsparse.wire.message import Record

MAX_REQUESTS = 64
LONGEST_NAME = 1024
LOST_SECONDS = 60.0
"""Seconds without a renewal after which a job is lost. Its node renews the record at least every 10 seconds."""
CANCEL = "cancel"
"""The field of a record that asks the job's node to stop the job."""


class JobKind(StrEnum):
    """What a job does."""

    IMPORT = "import"
    EXPORT = "export"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class JobOption:
    """The values of an option: `fits` checks one, `description` describes them all."""

    fits: Callable[[Any], bool]
    description: str


def is_argument_text(value: Any) -> bool:
    """Say whether a value is text without control characters, which an argument of a process must be."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and not any(ord(c) < 32 for c in value)


TRUTH = JobOption(lambda value: isinstance(value, bool), "true or false")
NAME = JobOption(
    is_argument_text, f"text of 1 to {LONGEST_NAME} characters, none of them a control character"
)
COUNT = JobOption(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_REQUESTS,
    f"a number from 1 to {MAX_REQUESTS}",
)


def one_of(choices: Iterable[Enum]) -> JobOption:
    """Return an option with the values of an enumeration, or of some of it."""
    names = [choice.value for choice in choices]
    return JobOption(lambda value: value in names, f"one of {', '.join(names)}")


OPTIONS: dict[JobKind, dict[str, JobOption]] = {
    JobKind.IMPORT: {
        "resume": TRUTH,
        "as_is": TRUTH,
        "events": TRUTH,
        "path": NAME,
        "part": NAME,
        "requests": COUNT,
    },
    JobKind.EXPORT: {
        "layout": one_of(FileLayout),
        "revision": one_of(FormatRevision),
        "matrices": one_of(MatrixEncoding),
        "filter": NAME,
        "virtual": one_of(EXPORTED),
        "force": TRUTH,
        "resume": TRUTH,
    },
    JobKind.COPY: {},
}
"""The options of each kind of job, by flag, with `_` for `-`."""


def check_options(kind: JobKind, options: Any) -> dict[str, Any]:
    """Return the options in a body; `BadRequest` for an unknown one, and for values that do not fit.

    Options that contradict each other are a `BadRequest` too, unless that depends on the place of the file.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise BadRequest("options must be an object.")
    known = OPTIONS[kind]
    for name, value in options.items():
        if name not in known:
            raise BadRequest(f"{kind} has no option {name[:80]!r}; it has {', '.join(known) or 'none'}.")
        if not known[name].fits(value):
            raise BadRequest(f"The option {name} must be {known[name].description}.")
    if "path" in options:
        check_title(options["path"])
    FileForm.parse(*map(options.get, ("layout", "revision", "matrices", "virtual")))
    return options


def flags(kind: JobKind, options: dict[str, Any]) -> list[str]:
    """Return the flags of the command for checked options."""
    given = [(f"--{name.replace('_', '-')}", options[name]) for name in OPTIONS[kind] if name in options]
    return [
        flag if value is True else f"{flag}={value}"  # one argument, because a value may begin with a dash
        for flag, value in given
        if value is not False
    ]


PLACE = {JobKind.IMPORT: "source", JobKind.EXPORT: "target", JobKind.COPY: "source"}
"""The key of the file in the body, for each kind of job; of the copied domain."""


class JobStatus(StrEnum):
    """The status of a job. `lost` is never stored: it is the status of a record that is not renewed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Job:
    """A requested job of the user `owner`: a domain, and the file at the URL `place`, or the path of what is copied."""

    id: str
    kind: JobKind
    owner: str
    domain: str
    place: str
    options: dict[str, Any]

    @property
    def is_inside(self) -> bool:
        """Whether the job reads what the server has itself, and no file elsewhere."""
        return self.kind is JobKind.COPY or self.place.startswith(UPLOAD)

    def new_record(self, now: float) -> Record:
        """Return the record of a waiting job."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "owner": self.owner,
            "domain": self.domain,
            PLACE[self.kind]: self.place,
            "options": self.options,
            "status": JobStatus.QUEUED.value,
            "done": 0,
            "created": now,
            "lastModified": now,
        }

    def arguments(self, file: str, endpoint: str, sources: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the arguments of the command; `file` is the place in the form of an argument.

        `sources` are the places of files that an imported file may name.
        """
        own: tuple[str, ...] = ("--endpoint", endpoint, "--piped", "--progress", "json")
        if self.kind is JobKind.COPY:
            return ("cp", *own, "--exact", file, self.domain)
        both = (file, self.domain) if self.kind is JobKind.IMPORT else (self.domain, file)
        if self.kind is JobKind.IMPORT:
            own += tuple(f"--sources={place}" for place in sources)
        return (self.kind.value, *own, *flags(self.kind, self.options), *both)


def job_status(record: Record, now: float) -> JobStatus:
    """Return the status of the job of a record, at the time `now`."""
    if "ended" not in record and now - record["lastModified"] > LOST_SECONDS:
        return JobStatus.LOST
    return JobStatus(record["status"])


def job_json(record: Record, now: float) -> Record:
    """Return the JSON of a job's record, at the time `now`."""
    found = {key: value for key, value in record.items() if key != CANCEL}
    found["status"] = job_status(record, now).value
    if found["status"] == JobStatus.LOST:
        resume = " with the option resume" if record["kind"] == JobKind.IMPORT else ""
        message = f"The node that had the job does not tell of it any more: POST it again{resume}."
        found["error"] = {"kind": ErrorKind.BUSY.value, "message": message}
    return found
