"""Settings of rate limits: how limits and rules are read, what a rule takes, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scrapy import Spider
from scrapy.utils.test import get_crawler

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.settings.rate_rules import Dimension, checked_limits, limits_of, parse_limit, spec_of, without_user
from scrapy_lease.settings.rates import own_address

API = "https://api.example.com/v1/"


def by_letter(request: Any) -> str | None:
    return request.url[-1]


def settings_of(limits: Any, **values: Any) -> LeaseSettings:
    return LeaseSettings.from_mapping({"LEASE_REDIS_URL": "redis://h", "LEASE_RATE_LIMITS": limits, **values})


def error_of(limits: Any, **values: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(limits, **values)
    return str(caught.value)


def only(limits: Any) -> Dimension:
    (dimension,) = settings_of(limits).rates
    return dimension


def taken_by(dimension: Dimension, url: str) -> str | None:
    """The rule that takes a URL."""
    host = url.partition("://")[2].partition("/")[0]
    return next((rule.text for rule in dimension.rules if rule.takes(url, host)), None)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("50/second", (50, 1000)),
        ("50 per second", (50, 1000)),
        ("50/s", (50, 1000)),
        ("100/5 minutes", (100, 300_000)),
        ("100 per 5 minutes", (100, 300_000)),
        ("7/250ms", (7, 250)),
        ("1/day", (1, 86_400_000)),
        ("10000/second", (10_000, 1000)),
        ("2/h", (2, 3_600_000)),
        (" 3 / Minute ", (3, 60_000)),
    ],
)
def test_a_limit_is_read(text: str, limit: tuple[int, int]) -> None:
    """A number, then / or per, then a unit, or so many of it."""
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["", "5", "5/fortnight", "/second", "0/second", "-1/s", "5/0 s", "5/99 ms", "1/25 hours", "10001/s", "5/m"]
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    """A bad unit, no number, a window below 100 ms or above a day, more than 10 000 a second: an error names it."""
    with pytest.raises(ValueError, match=r"limit|window"):
        parse_limit(text)
    assert "LEASE_RATE_LIMITS" in error_of({"api": text})


def test_several_limits_of_a_key() -> None:
    """A list, or one string of them; of two for one window the lower counts."""
    expected = ((50, 1000), (10_000, 86_400_000))
    for limits in (["50/second", "10000/day"], "50/second, 10000/day", ["60/s", "50/s", "10000/d"]):
        assert only({"api": limits}).each == expected


def test_text_is_read_as_json() -> None:
    """What -a and -s give is text."""
    assert only('{"api": "5/s"}') == only({"api": "5/s"})
    assert "no JSON" in error_of('{"api": ')


def test_rules_of_urls() -> None:
    """The first that takes a request counts; a host takes its subdomains and ports, `*` each other site."""
    dimension = only({"api": {
        API: "50/second", "re:/search[?]": "2/s", "example.com": "9/s", "shop.net:8080": "1/s", "*": "4/minute",
    }})  # fmt: skip
    assert taken_by(dimension, f"{API}x") == API
    assert taken_by(dimension, "http://a.b/search?q=1") == "re:/search[?]"
    assert taken_by(dimension, "http://www.example.com:99/") == "example.com"
    assert taken_by(dimension, "http://notexample.com/") is None
    assert taken_by(dimension, "http://shop.net:8080/") == "shop.net:8080"
    assert taken_by(dimension, "http://shop.net/") is None
    assert dimension.each == ((4, 60_000),)


def test_a_function_gives_the_key() -> None:
    """A dotted path is a dimension of its own."""
    path = f"{__name__}.by_letter"
    dimension = only({path: "5/s"})
    assert (dimension.name, dimension.function) == (path, by_letter)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"api": {"https:///x": "5/s"}}, "can match nothing"),
        ({"api": {"https://u:p@": "5/s"}}, "can match nothing"),
        ({"api": {"ftp://host/": "5/s"}}, "can match nothing"),
        ({"api": {"example.com/path": "5/s"}}, "can match nothing"),
        ({"api": {"": "5/s"}}, "can match nothing"),
        ({"api": {"https://example.com:65536/": "5/s"}}, "'https://example.com:65536/' can match nothing"),
        ({"api": {"example.com:70000": "5/s"}}, "'example.com:70000' can match nothing"),
        ({"api": {"example.com:0": "5/s"}}, "can match nothing"),
        ({"api": {}}, "can match nothing"),
        ({"account": "5/s"}, "can match nothing without accounts"),
        ({"api": {"https://a.b/": "5/s", "https://a.b/c": "1/s"}}, "takes all of it"),
        ({"domain": {"b.c": "5/s", "a.b.c": "1/s"}}, "takes all of it"),
        ({"domain": {"b.c": "5/s", "https://a.b.c/x": "1/s"}}, "takes all of it"),
        ({"api": {"re:[": "5/s"}}, "no regular expression"),
        ({"api": {"re:x": "5/s", "a.b": "1/s", "re:x ": "2/s"}}, ""),
        ({"ip": {"10.0.0.1": "5/s"}}, "rules are for"),
        ({"ipp": "5/s"}, "did you mean ip?"),
        ({"tests.no.such": "5/s"}, "cannot be imported"),
        ({f"{__name__}.API": "5/s"}, "cannot be called"),
        ({"api": 5}, "is no limit"),
        ({"api": []}, "is no limit"),
        ({}, "is no mapping"),
        ("50/second", "is no mapping"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(limits: Any, why: str) -> None:
    """What can match nothing, is no expression or no dimension stops the crawl before it begins."""
    if why:
        message = error_of(limits)
        assert why in message
        assert "LEASE_RATE_LIMITS" in message
    else:
        assert settings_of(limits).rates


def test_a_wrong_value_is_shown_legibly_and_without_passwords() -> None:
    """What is masked ends with its string; a rule is named without the password in it, too."""
    given = '{"api": {"https://a.b/x": "5/s", "http://me:hidden@c.d/": "5/x"}, "ua": "3/s"}'
    error = error_of(given)
    assert given.replace("hidden", "***") in error
    assert "'http://me:***@c.d/': '5/x' is no limit" in error
    assert "hidden" not in error


def test_a_user_is_no_part_of_a_rule() -> None:
    """Rules are told to others, stored and shown: what stands before the host of a URL goes no further than here."""
    given = {"https://me:hidden@a.b/v1/": "5/s", "https://token-hidden@c.d": "4/s"}
    dimension = only({"api": given})
    assert [rule.text for rule in dimension.rules] == ["https://a.b/v1/", "https://c.d"]
    assert "hidden" not in repr(dimension) + spec_of([dimension])
    assert taken_by(dimension, "https://a.b/v1/x") == "https://a.b/v1/"
    assert without_user("api https://me:hidden@a.b/v1/@x") == "api https://a.b/v1/@x"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"api": {"https://me:hidden@a.b/": "5/s", "https://you:hidden@a.b/": "1/s"}}, "takes all of it"),
        ({"api": {"re:https://me:hidden@a.b/": "5/s"}}, "see URLs without user and password"),
        ({"https://me:hidden@a.b/": "5/s"}, "is no dimension"),
    ],
)
def test_an_error_about_a_rule_shows_no_password(limits: Any, why: str) -> None:
    """Be it one that only its user would tell from another, or one that stands in the place of a dimension."""
    message = error_of(limits)
    assert why in message
    assert "hidden" not in message


@pytest.mark.parametrize(
    "limits",
    [
        {"ip": ["5/s", "100/day"], "api": {"https://a.b/": ["9/minute", "2/s"], "re:x": "1/s", "*": "4/hour"}},
        {"domain": "7/3 minutes"},
    ],
)
def test_limits_are_told_as_text(limits: dict[str, Any]) -> None:
    """What others read of it is what holds here; rules keep their order, and how a limit is written says nothing."""
    found = checked_limits(limits)
    again = checked_limits(json.loads(spec_of(found)))
    assert spec_of(again) == spec_of(found)
    assert [[rule.text for rule in each.rules] for each in again] == [
        [rule.text for rule in each.rules] for each in sorted(found, key=lambda each: each.name)
    ]
    assert sorted(limits_of(spec_of(found))) == sorted(limit for each in found for limit in each.limits)


def test_a_misspelt_spider_attribute_is_told_with_what_is_meant() -> None:
    """One letter less is a warning that names the setting."""

    class Limited(Spider):
        name = "limited"
        lease_rate_limit = "5/s"

    crawler = get_crawler(Limited, {"BOT_NAME": "bot"})
    crawler.spider = Limited()
    (notice,) = [text for text in LeaseSettings.from_crawler(crawler).notices if "lease_rate_limit" in text]
    assert notice.endswith("did you mean lease_rate_limits?")


def test_nothing_is_limited_unless_asked_for() -> None:
    """Without limits, or switched off, there are none; values are still checked."""
    assert settings_of(None).rates == ()
    assert settings_of({"api": "5/s"}, LEASE_RATE_ENABLED=False).rates == ()
    assert "no limit" in error_of({"api": "5/x"}, LEASE_RATE_ENABLED=False)


def test_what_speaks_of_limits_needs_some() -> None:
    """A setting that nothing would act on is refused."""
    assert "LEASE_RATE_SHARDS" in error_of(None, LEASE_RATE_SHARDS=2)
    assert "LEASE_TIMEZONE" in error_of(None, LEASE_TIMEZONE="Europe/Berlin")


def test_values_beside_the_limits() -> None:
    """Defaults are those of the reference; a time zone must be one; this host has an address."""
    settings = settings_of({"api": "5/s"})
    assert (settings.rate_algorithm, settings.rate_pace, settings.rate_park_after) == ("fixed", False, 1)
    assert (settings.rate_shards, settings.timezone, settings.node_ip) == (1, "UTC", own_address())
    assert "no time zone" in error_of({"api": "5/s"}, LEASE_TIMEZONE="Europe/Nowhere")


def test_the_share_of_keys_survives_items_that_are_off() -> None:
    """With items off no item is leased, and as many keys of limits are enforced as LEASE_ROLLOUT says."""
    settings = settings_of({"api": "5/s"}, LEASE_ITEMS_ENABLED=False, LEASE_ROLLOUT=0.5)
    assert (settings.queue, settings.rollout, settings.rate_share) == ("local", 0.0, 0.5)
