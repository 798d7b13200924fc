"""What became of each request that was handed to the engine."""

from scrapy_lease.outcomes.decisions import Kind, Outcome
from scrapy_lease.outcomes.tracker import Tracker, complete_request, current_request

__all__ = ["Kind", "Outcome", "Tracker", "complete_request", "current_request"]
