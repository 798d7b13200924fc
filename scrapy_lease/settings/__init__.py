"""The settings: what each means, where each may come from, and that all are right before the first request."""

from scrapy_lease.settings.model import LeaseSettings, takes_no_leases
from scrapy_lease.settings.values import redacted_url

__all__ = ["LeaseSettings", "redacted_url", "takes_no_leases"]
