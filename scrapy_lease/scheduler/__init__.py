"""The scheduler: backlog -> window -> engine, and what a request passes on that way."""

from scrapy_lease.scheduler.core import LeaseScheduler
from scrapy_lease.scheduler.local import LocalScheduler

__all__ = ["LeaseScheduler", "LocalScheduler"]
