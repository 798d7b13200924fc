"""Pools of leased resources: proxies, and with another configuration accounts.

The way of a use: :class:`Pool` finds a place on a lease (``shelf``), or a place in the line (``wants``). What is
missing is asked for and what is over given back (``stock``) in the turns of one task (``turns``). How a use ended is
judged outside and blamed here (``blame``; of accounts ``health``). What only accounts have is at a ``desk``: permits
(``purse``), local days (``calendar``).
"""

from scrapy_lease.exceptions import NoResource
from scrapy_lease.leases.pool.accounts import AccountOptions
from scrapy_lease.leases.pool.blame import Refusals, sentence_of
from scrapy_lease.leases.pool.options import OK, UNUSED, Judgement, Kind, PoolOptions, PoolStore, Sentence
from scrapy_lease.leases.pool.pool import Pool
from scrapy_lease.leases.pool.shelf import Lease, Use

__all__ = [
    "OK",
    "UNUSED",
    "AccountOptions",
    "Judgement",
    "Kind",
    "Lease",
    "NoResource",
    "Pool",
    "PoolOptions",
    "PoolStore",
    "Refusals",
    "Sentence",
    "Use",
    "sentence_of",
]
