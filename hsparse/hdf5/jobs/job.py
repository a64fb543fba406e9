"""A job (an import, export or copy that the server runs), its options and its record.

The options are the flags of `hsparse import` and `hsparse export` that make sense on a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from hsparse.errors import BadRequest, ErrorKind
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout
from hsparse.hdf5.format.plan.file_plan import EXPORTED
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.importer.upload import UPLOAD
from hsparse.model.link import check_title
from hsparse.wire.message import Record
from hsparse.wire.record_message import SetFields

MAX_REQUESTS = 64
LONGEST_NAME = 1024
LOST_SECONDS = 60.0
"""A job is lost if its record is not renewed for this many seconds. Its node renews it at least every 10 seconds."""
CANCEL = "cancel"
"""The field of a job's record by which a client requests that the job's node stops the job."""


class JobKind(StrEnum):
    """The kind of a job."""

    IMPORT = "import"
    EXPORT = "export"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class JobOption:
    """The valid values of an option: `fits` checks a value, `description` describes valid values."""

    fits: Callable[[Any], bool]
    description: str


def is_argument_text(value: Any) -> bool:
    """Return whether a value can be a process argument: text of 1 to 1024 characters without control characters."""
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
    """Return an option whose valid values are the values of these enumeration members."""
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
    },
    JobKind.COPY: {},
}
"""Maps each kind of job to its options; an option has the name of the command's flag, with `_` for `-`."""


def check_options(kind: JobKind, options: Any) -> dict[str, Any]:
    """Return the options in a request body, or an empty dict for None; raises `BadRequest` for invalid options.

    Options are invalid if they are unknown, have invalid values, or contradict each other. Whether the options suit the
    job's file is not checked.
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
    """Convert checked options to the flags of the command."""
    given = [(f"--{name.replace('_', '-')}", options[name]) for name in OPTIONS[kind] if name in options]
    return [
        flag if value is True else f"{flag}={value}"  # one argument, because a value may begin with a dash
        for flag, value in given
        if value is not False
    ]


PLACE = {JobKind.IMPORT: "source", JobKind.EXPORT: "target", JobKind.COPY: "source"}
"""The key of a job's place in a request body, by kind: the URL of a file or, for a copy, the source domain's path."""


class JobStatus(StrEnum):
    """The status of a job. `lost` is never stored: it is the status of a job whose record is not renewed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Job:
    """A job requested by the user `owner`; `place` is the URL of its file or, for a copy, the source domain's path."""

    id: str
    kind: JobKind
    owner: str
    domain: str
    place: str
    options: dict[str, Any]

    @property
    def is_inside(self) -> bool:
        """Whether the job's source is on the server: a domain to copy, or an upload."""
        return self.kind is JobKind.COPY or self.place.startswith(UPLOAD)

    def new_record(self, now: float) -> Record:
        """Return the record of this job while it waits; `now` is the time of its creation."""
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
        """Return the arguments of the job's command; `file` is the argument for the place.

        `sources` are the places of files to which an imported file may refer.
        """
        own: tuple[str, ...] = ("--endpoint", endpoint, "--piped", "--progress", "json")
        if self.kind is JobKind.COPY:
            return ("cp", *own, "--exact", file, self.domain)
        both = (file, self.domain) if self.kind is JobKind.IMPORT else (self.domain, file)
        if self.kind is JobKind.IMPORT:
            own += tuple(f"--sources={place}" for place in sources)
        return (self.kind.value, *own, *flags(self.kind, self.options), *both)


def job_status(record: Record, now: float) -> JobStatus:
    """Return the status, at the time `now`, of the job with this record."""
    if "ended" not in record and now - record["lastModified"] > LOST_SECONDS:
        return JobStatus.LOST
    return JobStatus(record["status"])


def job_json(record: Record, now: float) -> Record:
    """Convert a job's record to JSON, with its status at the time `now`."""
    found = {key: value for key, value in record.items() if key != CANCEL}
    found["status"] = job_status(record, now).value
    if found["status"] == JobStatus.LOST:
        resume = " with the option resume" if record["kind"] == JobKind.IMPORT else ""
        message = f"The node that ran the job no longer reports on it: POST it again{resume}."
        found["error"] = {"kind": ErrorKind.BUSY.value, "message": message}
    return found


def job_change(id: str, fields: Record) -> SetFields:
    """Return a change that sets fields of a job's record and renews the record, unless the job has ended."""
    return SetFields(id, fields, unless="ended", renew=True)
