"""A service node's parts, made once and given to every request."""

from __future__ import annotations

from dataclasses import dataclass, field

from hsparse.clock import Clock
from hsparse.sn.auth.authenticator import Authenticator
from hsparse.sn.data_nodes import Owners
from hsparse.sn.files.file_plans import FilePlans
from hsparse.sn.http.rate_limit import RateLimit
from hsparse.sn.jobs.job_queue import JobQueue
from hsparse.sn.metrics import Metrics
from hsparse.sn.records.object_json import ObjectJsonCache
from hsparse.sn.settings import ServiceSettings
from hsparse.sn.statistics import Statistics
from hsparse.wire.budget import Budget


@dataclass(frozen=True, slots=True)
class Service:
    """What handlers reach through their context; `bodies` and `answers` are the memory they may use.

    A handler holds its body before its answer, never the other way round, so that none waits in a circle.
    """

    settings: ServiceSettings
    owners: Owners
    clock: Clock
    authenticator: Authenticator
    metrics: Metrics
    start_time: float
    bodies: Budget = field(init=False)
    rates: RateLimit = field(init=False)
    answers: Budget = field(init=False)
    statistics: Statistics = field(init=False)
    shown: ObjectJsonCache = field(init=False)
    files: FilePlans = field(init=False)
    jobs: JobQueue = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", Budget(self.settings.request_memory))
        rates = RateLimit(self.settings.rate_limit, self.settings.rate_burst, self.clock)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "answers", Budget(self.settings.answer_memory))
        statistics = Statistics(self.owners, self.clock, self.settings.bucket)
        object.__setattr__(self, "statistics", statistics)
        object.__setattr__(self, "shown", ObjectJsonCache())
        files = FilePlans(self.owners, self.clock, self.settings, self.answers)
        object.__setattr__(self, "files", files)
        jobs = JobQueue(self.owners, self.clock, self.settings, self.metrics)
        object.__setattr__(self, "jobs", jobs)
