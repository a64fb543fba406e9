"""Settings of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hsparse.setting import setting


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Limits of jobs, which read and write files below `job_places` only."""

    GROUP: ClassVar[str] = "Jobs"
    COMMANDS: ClassVar[tuple[str, ...]] = ("serve", "sn")

    job_places: tuple[str, ...] = setting(
        (),
        "where jobs may read and write, comma-separated: s3://bucket/prefix/, file:///directory/",
    )
    jobs_at_once: int = setting(1, "jobs that a service node runs at a time", ge=1, le=64)
    jobs_queued: int = setting(16, "jobs that may wait for a service node", ge=0, le=1000)
    jobs_of_user: int = setting(8, "jobs of one user that may wait or run on a service node", ge=1, le=1000)
    job_memory: int = setting(16 * 1024**3, "address space of a job's process; 0: any", ge=0, is_size=True)
    job_time: float = setting(86400.0, "seconds that a job may run; 0: any time", ge=0)


SECTION = JobSettings
