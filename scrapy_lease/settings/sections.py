"""The sections of the settings, one model class each.

A field's description, unit and allowed values are its entry in the reference and its error message.
"""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from scrapy_lease.settings.base import Section, setting
from scrapy_lease.settings.values import (
    Count,
    Name,
    PositiveSeconds,
    Seconds,
    Share,
    Stay,
    Waits,
    checked_item_key,
    checked_run,
    checked_url,
)


class SwitchSettings(Section):
    """Switches"""

    enabled: bool = setting(
        True,
        "Off: no store and no lease; values are still checked.",
        allowed="True or False",
    )
    items_enabled: bool = setting(True, "Off: items are not leased.", allowed="True or False")
    rollout: Share = setting(
        1.0,
        "Share of the item keys that are leased, the same ones on every host; the rest each host fetches for itself, "
        "as without scrapy-lease, and counts as `lease/items/shadow`. The shared backlog (`LEASE_QUEUE` `redis`) "
        "leases all of them whatever the share: a warning says so. Likewise the share of the keys whose rate limits "
        "are enforced; what the rest would have spent counts as `lease/rate/shadow`.",
        allowed="a number from 0 to 1",
    )


class StoreSettings(Section):
    """Store and session"""

    redis_url: Annotated[str, AfterValidator(checked_url)] = setting(
        "embedded://",
        "The store. `embedded://[dir]` is a server of this host, kept in `dir` (default `.scrapy/lease`) and "
        "shared by all its crawls that name the same; a warning tells when it is used for want of a URL.",
        allowed="redis://, rediss://, unix:// or embedded://[dir]",
        shown_default="`REDIS_URL`, else `embedded://`",
    )
    namespace: Name = setting(
        "scrapybot",
        "Crawls with the same namespace and store cooperate.",
        allowed="a name",
        shown_default="`BOT_NAME`",
    )
    job: Name = setting(
        "{spider}",
        "What hosts work on together. May name arguments of the spider: `{spider}-{country}`.",
        allowed="a name, with {spider} and the spider's arguments in braces",
    )
    run: Annotated[str, AfterValidator(checked_run)] = setting(
        "", "A name gives the job a pass of its own, which the same name resumes.", allowed="a name"
    )
    runs_keep: Count = setting(
        3,
        "Named runs of a job that are kept; older ones are deleted, also with requests that were not done (a warning).",
        allowed="a whole number from 1",
    )
    node: Name = setting(
        socket.gethostname,
        "The name of this host, shown to people.",
        allowed="a name",
        shown_default="the host's name",
    )
    ttl: Literal["auto"] | Annotated[Seconds, Field(ge=2)] = setting(
        "auto",
        "How long a session lives without a heartbeat; a heartbeat is sent every third of it. `auto` follows "
        "the number of live sessions (5 for up to 10, 60 for more than 200) and the lag of the reactor.",
        allowed='"auto" or a number from 2',
        unit="seconds",
    )
    block_grace: Seconds = setting(
        60,
        "For how long a blocked reactor (heavy parsing, a blocking pipeline) does not cost the session; 0: not at all.",
        allowed="a number from 0",
        unit="seconds",
    )
    max_hold: PositiveSeconds = setting(
        1800,
        "Time without progress of an item after which its holder gives it up as failed.",
        allowed="a number above 0",
        unit="seconds",
    )
    store_timeout: PositiveSeconds = setting(
        5, "Timeout of every command sent to the store.", allowed="a number above 0", unit="seconds"
    )
    on_store_down: Literal["wait", "unsafe_local"] = setting(
        "wait",
        "`wait`: fetch nothing new while the store is away, and resume by itself. `unsafe_local`: go on with what this "
        "node discovers, without leases (what it fetches then, others may fetch too), and tell the store afterwards.",
        allowed='"wait" or "unsafe_local"',
    )
    store_down_timeout: Seconds = setting(
        0,
        "Time of waiting for the store that closes the crawl with `lease_store_unavailable`; 0: never.",
        allowed="a number from 0",
        unit="seconds",
    )


class ItemSettings(Section):
    """Items"""

    queue: Literal["redis", "local"] = setting(
        "redis",
        "`redis`: one crash-safe backlog for all hosts. `local`: each host discovers for itself with Scrapy's queues "
        "(JOBDIR works) and leases what it is about to fetch.",
        allowed='"redis" or "local"',
    )
    item_key: Annotated[str, AfterValidator(checked_item_key)] = setting(
        "fingerprint",
        "What makes two requests one item: the request's fingerprint, or a function "
        "`f(request, spider) -> str | None`. A spider method `lease_item_key(self, request)` wins, "
        '`request.meta["lease_item"]` wins over both.',
        allowed='"fingerprint" or the dotted path of a function f(request, spider)',
    )
    start: Literal["one", "each"] = setting(
        "one",
        "`one`: a single session of the run reads `start()`, another takes over if it dies. `each`: all do, "
        "and the n-th occurrence of a start request counts once over all hosts.",
        allowed='"one" or "each"',
    )
    start_ahead: Count = setting(
        10000,
        "`start()` is paused while more requests than this are pending.",
        allowed="a whole number from 1",
        unit="requests",
    )
    done_when: Literal["items", "response", "manual"] = setting(
        "items",
        "When an item is done. `items`: its callback ended, all it yielded left the pipelines without error "
        "and its requests are safe in the backlog. `response`: its callback ended. `manual`: "
        "`await scrapy_lease.complete(response)`.",
        allowed='"items", "response" or "manual"',
    )
    done_ttl: Seconds = setting(
        0,
        "Time after completion in which a page that yielded items is not fetched again; 0: for ever. "
        '`meta["lease_done_ttl"]` overrides it.',
        allowed="a number from 0",
        unit="seconds",
    )
    on_contended: Literal["wait", "skip"] = setting(
        "wait",
        'With `LEASE_QUEUE = "local"`, an item that another live session holds is (`wait`) kept aside, taken over if '
        "the holder dies and dropped when it is done, or (`skip`) dropped at once.",
        allowed='"wait" or "skip"',
    )
    on_holder_death: Literal["refetch", "park"] = setting(
        "refetch",
        "What becomes of items that a dead session had sent. `refetch`: fetched again (at least once). "
        "`park`: put among the dead letters as doubtful (at most once).",
        allowed='"refetch" or "park"',
    )
    item_attempts: Count = setting(
        3,
        "Faults of the item itself (target errors after RETRY_TIMES, exceptions of callback or pipeline) "
        "before it goes to the dead letters.",
        allowed="a whole number from 1",
    )
    item_deaths: Count = setting(
        5,
        "Sessions that died with an item before it goes to the dead letters.",
        allowed="a whole number from 1",
    )
    item_backoff: Waits = setting(
        (60, 3600),
        "First and longest wait of a failed item in the backlog, doubling, jittered.",
        allowed="two numbers above 0, the first not the larger: (60, 3600) or 60,3600",
        unit="seconds",
    )
    window: Count = setting(
        32,
        "Leased requests that a node holds ready for its downloader.",
        allowed="a whole number from 1",
        unit="requests",
        shown_default="2 × `CONCURRENT_REQUESTS` (64 when that is 0)",
    )
    queue_idle: Stay = setting(
        0,
        "How long to stay after the run is drained; -1: for ever (a standing worker).",
        allowed="a number from 0, or -1",
        unit="seconds",
    )
    fence_field: Name | None = setting(
        None,
        "Name of an item field that receives the fence.",
        allowed="the name of a field",
        shown_default="–",
    )
    expected_items: Count = setting(
        10_000_000,
        "Sizes the compact record of done items; more still work.",
        allowed="a whole number from 1",
    )
