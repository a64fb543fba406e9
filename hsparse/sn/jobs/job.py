"""A job: an import or export that the server does by itself, and the record that tells how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hsparse.errors import ErrorKind
from hsparse.sn.jobs.job_options import Kind, flags
from hsparse.wire.message import Record

LOST_SECONDS = 60.0
"""A job whose node has not renewed the record for so long is lost. Nodes renew it every 10 seconds at least."""
PLACE = {Kind.IMPORT: "source", Kind.EXPORT: "target"}
"""What the file is called, of a job of each kind."""
CANCEL = "cancel"
"""The field of a record that tells the node which runs the job to stop it."""


class Status(StrEnum):
    """How a job goes; `lost` is in no record, it is what a record means that is not renewed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for: a domain of the user `owner`, and the file at the URL `place`."""

    id: str
    kind: Kind
    owner: str
    domain: str
    place: str
    options: dict[str, Any]

    def new_record(self, now: float) -> Record:
        """Return the record of a job that waits."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "owner": self.owner,
            "domain": self.domain,
            PLACE[self.kind]: self.place,
            "options": self.options,
            "status": Status.QUEUED.value,
            "done": 0,
            "created": now,
            "lastModified": now,
        }

    def arguments(self, file: str, endpoint: str) -> tuple[str, ...]:
        """Return the arguments of the command that does it, `file` being the place as the command names it."""
        both = (file, self.domain) if self.kind is Kind.IMPORT else (self.domain, file)
        own = ("--endpoint", endpoint, "--piped", "--progress", "json")
        return (self.kind.value, *own, *flags(self.kind, self.options), *both)


def job_status(record: Record, now: float) -> Status:
    """Return how the job of a record goes, at the time `now`."""
    if "ended" not in record and now - record["lastModified"] > LOST_SECONDS:
        return Status.LOST
    return Status(record["status"])


def shown_job(record: Record, now: float) -> Record:
    """Return a job's record as answers show it, at the time `now`."""
    shown = {key: value for key, value in record.items() if key != CANCEL}
    shown["status"] = job_status(record, now).value
    if shown["status"] == Status.LOST:
        resume = " with the option resume" if record["kind"] == Kind.IMPORT else ""
        message = f"The node that had the job does not tell of it any more: POST it again{resume}."
        shown["error"] = {"kind": ErrorKind.BUSY.value, "message": message}
    return shown
