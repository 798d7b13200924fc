"""The section of leased accounts."""

from __future__ import annotations

from scrapy_lease.settings.account_values import (
    AccountList,
    HandlerClass,
    Hours,
    Key,
    OnProxyLost,
    OrQuota,
    PageList,
    TimeOfDay,
)
from scrapy_lease.settings.base import Section, setting
from scrapy_lease.settings.proxy_values import Amount, PoolTable, ProviderClass, Routing
from scrapy_lease.settings.values import Count, PositiveSeconds, Seconds, Share


class AccountSettings(Section):
    """Accounts"""

    account_enabled: bool = setting(
        True,
        "Off: no accounts are leased, requests go as without scrapy-lease; values are still checked.",
        allowed="True or False",
    )
    accounts: AccountList = setting(
        None,
        "The accounts of the pool `default`: dicts with `id`, and `cookies`, `headers`, `username`, `password` and "
        "`proxy` (bound for ever) as needed; or a file with one JSON object a line.",
        allowed="a list of dicts, or the path of a file",
        shown_default="–",
    )
    account_provider: ProviderClass = setting(
        None,
        "Where the accounts of the pool `default` come from: a class with `async fetch(count) -> list[Account]`, asked "
        "at the daily refill.",
        allowed="a class, or its dotted path",
        shown_default="–",
    )
    account_pools: PoolTable = setting(
        None,
        "More pools by name. Each takes the settings of this section, in lower case and without prefix, and "
        '`timezone`: `{"sellers": {"accounts": "sellers.jsonl", "quota": 500}}`. Where it does not say how its '
        "accounts are used, the top level does. One that names no source is filled with `scrapy-lease accounts add`.",
        allowed="a dict of dicts",
        shown_default="–",
    )
    account_handler: HandlerClass = setting(
        None,
        "A class with `async login(account, fetch)` and `apply(request, account)`, or one of them. The default sets "
        "the account's headers; each account has its own cookiejar in any case.",
        allowed="a class, or its dotted path",
        shown_default="–",
    )
    account_pool: Routing = setting(
        "default",
        "Which requests go with an account of which pool, as `LEASE_PROXY_POOL`; `False`: with none. What "
        '`engine.download_async` fetches has none unless `"media"` says so. `meta["lease_account"]` wins.',
        allowed="the name of a pool, a list of names, False, or a mapping to these",
    )
    account_urls: PageList = setting(
        None,
        'Which pages are asked for with an account: begins of URLs, `re:` and a regular expression, `"media"`. All '
        "others go without.",
        allowed='a list of URL prefixes, re:… and "media"',
        shown_default="all pages",
    )
    account_holders: Amount = setting(
        1, "Sessions that may hold an account at once; 0: any number.", allowed="a whole number from 0", unit="sessions"
    )
    account_concurrency: Count = setting(
        1, "Requests in flight of one account, in one session.", allowed="a whole number from 1", unit="requests"
    )
    account_interval: Seconds = setting(
        0, "Time between two uses of an account.", allowed="a number from 0", unit="seconds"
    )
    account_hours: Hours = setting(
        None,
        'When accounts work, in `LEASE_TIMEZONE`: `"8-20"`, `"22-6"` over midnight, `"8-12,13:30-18"`.',
        allowed='hours like "8-20"',
        shown_default="all day",
    )
    account_quota: Amount = setting(
        0,
        "Requests sent with an account in a local day, over all hosts, logins excepted; 0: any number.",
        allowed="a whole number from 0",
        unit="requests",
    )
    account_min_success: Share = setting(
        0.9,
        "Share of good answers, of at least 20 uses, below which an account goes to the cold pool.",
        allowed="a number from 0 to 1",
    )
    account_slow: PositiveSeconds = setting(
        2.0,
        "An answer that takes longer, and longer than twice the pool's median at that site, lets its account cool.",
        allowed="a number above 0",
        unit="seconds",
    )
    account_cooldown: PositiveSeconds = setting(
        60, "How long an account cools.", allowed="a number above 0", unit="seconds"
    )
    account_active: PositiveSeconds = setting(
        14400, "How long an account that is not used stays active.", allowed="a number above 0", unit="seconds"
    )
    account_refill: TimeOfDay = setting(
        "04:00",
        "When the pool is filled up from its cold accounts and its provider: once a local day, spread over an hour.",
        allowed='a time like "04:00"',
    )
    account_wait: OrQuota = setting(
        60,
        "How long a request waits for an account before it goes back to the backlog. A pool with nothing usable for "
        'five times as long closes the crawl with `lease_no_accounts`; `"quota"`: it waits until the quotas renew.',
        allowed='a number above 0, or "quota"',
        unit="seconds",
    )
    account_on_proxy_lost: OnProxyLost = setting(
        "rebind",
        "What an account does whose leased proxy is lost or refused: `rebind`: it goes on with another; `wait`: it "
        "waits for that one, and never has another.",
        allowed='"rebind" or "wait"',
    )
    account_key: Key = setting(
        None,
        "Encrypts what the store keeps of accounts: credentials and cookies. Of several the first seals, each opens.",
        allowed="a Fernet key, or several with commas between",
        shown_default="–",
    )
