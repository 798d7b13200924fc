"""What an entry says, which server and which feed the settings name, and what an entry is while it is on its way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.settings import Settings
from scrapy_redis.spiders import RedisSpider as TheirSpider

import scrapy_lease
from scrapy_lease.exceptions import LeaseError, SettingsError
from scrapy_lease.feeds.data import EntryError, request_from_data
from scrapy_lease.feeds.entries import ORIGIN, Fed, Origin, is_fed, take_origin
from scrapy_lease.feeds.options import FeedOptions
from scrapy_lease.feeds.server import feed_url
from scrapy_lease.leases.items import Verdict

ENTRIES: list[Any] = [
    {"url": "http://a.test/?old=1"},
    {"url": "http://a.test/", "meta": {"job": "x", "deep": {"a": [1]}}},
    {"url": "http://a.test/", "method": "post", "user": "ü", "tags": ["a", "b"]},
    {"url": "http://a.test/?old=1", "q": "x y"},
    {"url": "http://a.test/", "meta": None},
]


def parts(request: Request) -> tuple[Any, ...]:
    """All that tells two requests apart."""
    return type(request), request.method, request.url, request.body, request.headers, request.meta, request.dont_filter


@pytest.mark.parametrize("data", [b"http://a.test/%C3%BC?x=1", *(json.dumps(entry).encode() for entry in ENTRIES)])
def test_an_entry_says_what_it_says_to_scrapy_redis(data: bytes) -> None:
    """The request is the one that the spider of scrapy-redis makes of the same bytes."""
    spider = TheirSpider("theirs")
    spider.redis_encoding = "utf-8"
    assert parts(request_from_data(data, "utf-8")) == parts(spider.make_request_from_data(data))


def test_the_encoding_counts() -> None:
    """Bytes are read as redis_encoding says."""
    assert request_from_data("http://a.test/ü".encode("latin-1"), "latin-1").url == "http://a.test/%C3%BC"


@pytest.mark.parametrize(
    "data", [b"", b"no url", b"\xff", b"[1]", b"17", b'"x"', b"{}", b'{"url": null}', b'{"url": 5}']
)
def test_what_makes_no_request_raises(data: bytes) -> None:
    """An entry of which nothing can be made raises, so that it is put aside and not dropped."""
    with pytest.raises((EntryError, ValueError, TypeError)):
        request_from_data(data, "utf-8")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, None),
        ({"REDIS_PARAMS": {"socket_timeout": 5, "retry_on_timeout": True}}, None),
        ({"REDIS_URL": "redis://h:1/2"}, "redis://h:1/2"),
        ({"REDIS_URL": "redis://h:1/2", "REDIS_HOST": "other", "REDIS_PORT": 5}, "redis://h:1/2"),
        ({"REDIS_URL": "redis://h", "REDIS_PARAMS": {"password": "p@ss/1"}}, "redis://:p%40ss%2F1@h"),
        ({"REDIS_URL": "redis://u:own@h", "REDIS_PARAMS": {"password": "other"}}, "redis://u:own@h"),
        ({"REDIS_HOST": "h"}, "redis://h:6379/0"),
        ({"REDIS_PORT": "7000"}, "redis://localhost:7000/0"),
        ({"REDIS_PARAMS": {"host": "h", "db": 3, "username": "u", "password": "p"}}, "redis://u:p@h:6379/3"),
        ({"REDIS_HOST": "wins", "REDIS_DB": 2, "REDIS_PARAMS": {"host": "h", "db": 3}}, "redis://wins:6379/2"),
        (
            {"REDIS_HOST": "h", "REDIS_PARAMS": {"ssl": True, "ssl_ca_certs": "/dev/null"}},
            "rediss://h:6379/0?ssl_ca_certs=%2Fdev%2Fnull",
        ),
        ({"REDIS_PARAMS": {"unix_socket_path": "/run/r.sock"}}, "unix:///run/r.sock?db=0"),
    ],
)
def test_which_server(settings: dict[str, Any], url: str | None) -> None:
    """The settings of scrapy-redis name it in their order; what is about its client alone names none."""
    assert feed_url(Settings(settings)) == url


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"REDIS_URL": "http://h:secret@x"}, "REDIS_URL = 'http://h:***@x'"),
        ({"REDIS_URL": "embedded://"}, "REDIS_URL = 'embedded://'"),
        ({"REDIS_PORT": "x", "REDIS_PARAMS": {"password": "secret"}}, "REDIS_HOST, REDIS_PORT"),
    ],
)
def test_a_wrong_server(settings: dict[str, Any], named: str) -> None:
    """The error names setting and value, and no password."""
    with pytest.raises(SettingsError) as caught:
        feed_url(Settings(settings))
    assert named in str(caught.value)
    assert "secret" not in str(caught.value)


def options(settings: dict[str, Any] | None = None, **attributes: Any) -> FeedOptions:
    return FeedOptions.of(Spider("shop", **attributes), Settings({"CONCURRENT_REQUESTS": 8, **(settings or {})}))


def test_the_defaults_of_a_feed() -> None:
    """Those of scrapy-redis."""
    assert options() == FeedOptions("shop:start_urls", None, "list", 8, "utf-8", 0)
    assert options({"CONCURRENT_REQUESTS": 0}).batch == 16


def test_settings_and_attributes_of_a_feed() -> None:
    """Attributes win over settings; arguments of the command line are text."""
    settings = {
        "REDIS_START_URLS_KEY": "k:%(name)s", "REDIS_START_URLS_BATCH_SIZE": "5", "REDIS_ENCODING": "latin-1",
        "REDIS_START_URLS_AS_ZSET": "True", "MAX_IDLE_TIME_BEFORE_CLOSE": "7",
    }  # fmt: skip
    assert options(settings) == FeedOptions("k:shop", None, "zset", 5, "latin-1", 7)
    own = {"redis_key": "own", "redis_batch_size": "100000", "redis_encoding": "ascii", "max_idle_time": "0.5"}
    assert options(settings | {"REDIS_START_URLS_AS_SET": True}, **own) == FeedOptions(
        "own", None, "set", 1000, "ascii", 0.5
    )


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"redis_key": "%(nome)s"}, "spider attribute redis_key = '%(nome)s'"),
        ({"redis_key": "100%"}, "spider attribute redis_key = '100%'"),
        ({"redis_batch_size": "many"}, "spider attribute redis_batch_size = 'many'"),
        ({"redis_encoding": "klingon"}, "spider attribute redis_encoding = 'klingon'"),
        ({"max_idle_time": -1}, "spider attribute max_idle_time = -1"),
        ({"max_idle_time": float("nan")}, "spider attribute max_idle_time = nan"),
    ],
)
def test_a_wrong_option(attributes: dict[str, Any], named: str) -> None:
    """The error names attribute and value."""
    with pytest.raises(SettingsError) as caught:
        options(**attributes)
    assert named in str(caught.value)


def test_an_entry_is_safe_when_all_it_led_to_is() -> None:
    """Passed on and every push answered; untouched only while nothing of it has arrived."""
    fed = Fed.of("sid", "1-1", b"raw")
    assert (fed.is_safe, fed.is_untouched) == (False, True)
    request = Request("http://a.test/", meta={ORIGIN: Origin(fed, 1), "own": 1})
    assert is_fed(request)
    assert take_origin(request) == Origin(fed, 1)
    assert (request.meta, take_origin(request)) == ({"own": 1}, None)
    fed.unsafe += 1
    fed.is_passed_on = True
    assert (fed.is_safe, fed.is_untouched, fed.has_failed) == (False, False, False)
    fed.unsafe -= 1
    assert fed.is_safe
    fed.is_passed_on, fed.made = False, 2
    assert not fed.is_safe
    fed.made = 1
    fed.judge(Verdict.FAILED, "entry", "why")
    assert (fed.is_safe, fed.has_failed) == (True, True)


def test_keys_of_entries_differ() -> None:
    """By session, by entry and by place; the same entry taken over gives the same key."""
    feds = [Fed.of(sid, entry, b"") for sid in ("a", "b") for entry in ("1-1", "1-2")]
    keys = {fed.key(place) for fed in feds for place in (1, 2)}
    assert len(keys) == 8
    assert Fed.of("a", "1-1", b"").key(2) in keys


def test_spiders_are_there_under_their_names() -> None:
    """scrapy_lease offers both spiders, and nothing that it does not have."""
    assert scrapy_lease.RedisSpider.__name__ == "RedisSpider"
    assert scrapy_lease.RedisCrawlSpider.__name__ == "RedisCrawlSpider"
    with pytest.raises(AttributeError, match="RedisSpyder"):
        scrapy_lease.RedisSpyder  # noqa: B018


def test_a_feed_is_read_in_a_crawl_only() -> None:
    """Without one start() says so, in the place of reading nothing."""
    spider = scrapy_lease.RedisSpider("shop")
    with pytest.raises(LeaseError, match="in a crawl only"):
        spider.start().__anext__().send(None)
