"""Permits of rate limits: counted in the store for each window, fetched in slices, spent here.

:class:`Rates` has a :class:`Counter` for each limit on each key; what a counter has lies in its ``Purse``.
"""

from scrapy_lease.leases.rates.counter import Counter
from scrapy_lease.leases.rates.rates import Needs, Rates
from scrapy_lease.leases.rates.words import CounterName, Limit, RateAsk, RateOptions, RateStore

__all__ = ["Counter", "CounterName", "Limit", "Needs", "RateAsk", "RateOptions", "RateStore", "Rates"]
