"""Prints the reference of the settings, ``docs/settings.md``."""

from scrapy_lease.settings.model import LeaseSettings
from scrapy_lease.settings.reference import reference

print(reference(LeaseSettings), end="")
