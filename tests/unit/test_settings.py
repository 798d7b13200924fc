"""LeaseSettings: the order of the sources, what is allowed, and errors that say everything but secrets."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter

from scrapy_lease.exceptions import LeaseError, SettingsError
from scrapy_lease.meta import ItemKeys
from scrapy_lease.settings import LeaseSettings, redacted_url
from scrapy_lease.settings.reference import reference

REFERENCE = Path(__file__).parents[2] / "docs" / "settings.md"
HERE = "tests.unit.test_settings"


class Shop(Spider):
    name = "shop"
    country = "de"


def crawler_of(
    spider_class: type[Spider] = Shop,
    *,
    cmdline: dict[str, str] | None = None,
    arguments: dict[str, Any] | None = None,
    **project: Any,
) -> Crawler:
    """A crawler as `scrapy crawl` has it when add-ons are loaded."""
    settings = Settings({"LEASE_REDIS_URL": "redis://localhost", **project})
    settings.update(cmdline or {}, priority="cmdline")
    crawler = Crawler(spider_class, settings)
    crawler.spider = spider_class.from_crawler(crawler, **(arguments or {}))
    return crawler


def error_of(values: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        LeaseSettings.from_mapping(values)
    return str(caught.value)


def constant_key(request: Request, spider: Spider) -> str | None:
    return f"{spider.name} {request.method}"


class Sources:
    """The sources of one setting, lowest first."""

    ORDER = ("default", "project", "custom", "class", "cmdline", "instance")

    @staticmethod
    def window(*sources: str) -> int:
        custom = {"LEASE_WINDOW": "3"} if "custom" in sources else {}
        attributes: dict[str, Any] = {"name": "shop", "custom_settings": custom}
        if "class" in sources:
            attributes["lease_window"] = "4"
        crawler = crawler_of(
            type("Made", (Spider,), attributes),
            cmdline={"LEASE_WINDOW": "5"} if "cmdline" in sources else None,
            arguments={"lease_window": "6"} if "instance" in sources else None,
            **({"LEASE_WINDOW": 2} if "project" in sources else {}),
            CONCURRENT_REQUESTS=50,
        )
        return LeaseSettings.from_crawler(crawler).window


@given(st.sets(st.sampled_from(Sources.ORDER[1:])))
def test_the_highest_source_wins(sources: set[str]) -> None:
    """Instance attribute, -s, class attribute, custom_settings, settings.py, default: in this order."""
    highest = max([0, *map(Sources.ORDER.index, sources)])
    assert Sources.window(*sources) == (100, 2, 3, 4, 5, 6)[highest]


def test_an_attribute_that_is_none_is_not_given() -> None:
    """A declared but unset attribute leaves the value to the sources below it."""
    spider_class = type("Made", (Shop,), {"lease_ttl": None})
    assert LeaseSettings.from_crawler(crawler_of(spider_class, LEASE_TTL=7)).ttl == 7


def test_a_property_counts_as_class_attribute() -> None:
    """What a property of the spider says is read from the instance."""
    spider_class = type("Made", (Shop,), {"lease_run": property(lambda self: self.country)})
    assert LeaseSettings.from_crawler(crawler_of(spider_class, LEASE_RUN="x")).run == "de"


def test_defaults() -> None:
    """Without any LEASE_ setting the contract's defaults hold, Scrapy's own settings where it names them."""
    settings = LeaseSettings.from_crawler(crawler_of(BOT_NAME="bot", CONCURRENT_REQUESTS="8"))
    assert (settings.namespace, settings.job, settings.run, settings.node) == (
        "bot",
        "shop",
        "",
        socket.gethostname(),
    )
    assert (settings.ttl, settings.block_grace, settings.max_hold, settings.store_timeout) == (
        "auto",
        60,
        1800,
        5,
    )
    assert (settings.window, settings.start_ahead, settings.expected_items) == (16, 10_000, 10_000_000)
    assert (settings.item_key, settings.item_attempts, settings.item_deaths) == ("fingerprint", 3, 5)
    assert (settings.item_backoff, settings.done_ttl, settings.queue_idle) == ((60, 3600), 0, 0)
    assert (settings.enabled, settings.fence_field, settings.runs_keep) == (True, None, 3)


def test_window_where_requests_are_unlimited() -> None:
    """CONCURRENT_REQUESTS = 0 means no limit, not an empty window."""
    assert LeaseSettings.from_crawler(crawler_of(CONCURRENT_REQUESTS=0)).window == 64


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("enabled", "0", False),
        ("items_enabled", "False", False),
        ("ttl", "auto", "auto"),
        ("ttl", "2.5", 2.5),
        ("item_backoff", "1,2.5", (1, 2.5)),
        ("item_backoff", "[1, 2]", (1, 2)),
        ("item_backoff", "(1, 2)", (1, 2)),
        ("queue_idle", "-1", -1),
        ("run", "2026-12-01", "2026-12-01"),
        ("fence_field", "fence", "fence"),
        ("item_key", f"{HERE}.constant_key", f"{HERE}.constant_key"),
        ("redis_url", "REDISS://u:p@h:6380/2", "rediss://u:p@h:6380/2"),
        ("redis_url", "unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
        ("redis_url", "embedded:///var/lib/lease", "embedded:///var/lib/lease"),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(field: str, text: str, value: object) -> None:
    """-a and -s give text; it means the same as the value that settings.py would hold."""
    assert getattr(LeaseSettings.from_crawler(crawler_of(arguments={f"lease_{field}": text})), field) == value
    assert getattr(LeaseSettings.from_mapping({f"LEASE_{field.upper()}": text}), field) == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LEASE_TTL", "1.9", '"auto" or a number from 2'),
        ("LEASE_TTL", "nan", '"auto" or a number from 2'),
        ("LEASE_STORE_TIMEOUT", 0, "a number above 0"),
        ("LEASE_WINDOW", "0", "a whole number from 1"),
        ("LEASE_WINDOW", True, "is no number"),
        ("LEASE_ENABLED", "perhaps", "True or False"),
        ("LEASE_QUEUE_IDLE", "-2", "a number from 0, or -1"),
        ("LEASE_ITEM_BACKOFF", "60", "two numbers"),
        ("LEASE_ITEM_BACKOFF", (60, 5), "the first wait is longer"),
        ("LEASE_START", "eech", 'did you mean "each"?'),
        ("LEASE_DONE_WHEN", "itemz", 'did you mean "items"?'),
        ("LEASE_ON_STORE_DOWN", "unsafe", 'is not allowed; allowed: "wait" or "unsafe_local"'),
        ("LEASE_ITEM_KEY", "no.such.thing", "cannot be imported"),
        ("LEASE_ITEM_KEY", f"{HERE}.HERE", "cannot be called"),
        ("LEASE_NAMESPACE", "", "a name"),
        ("LEASE_REDIS_URL", "http://h", "redis://, rediss://, unix:// or embedded://[dir]"),
        (
            "LEASE_REDIS_URL",
            "rediss://h/0?ssl_ca_certs=/no/ca.crt",
            "its ssl_ca_certs names '/no/ca.crt', which cannot be read",
        ),
        (
            "LEASE_REDIS_URL",
            "redis+sentinel://a:1,b:2/s/0",
            "redis+sentinel:// is not available in this version",
        ),
        ("LEASE_REDIS_URL", "redis+cluster://a:1", "redis+cluster:// is not available in this version"),
        ("LEASE_REDIS_URL", "redis://h:0", "its port is not a number from 1 to 65535"),
        ("LEASE_REDIS_URL", "redis://h:70000", "its port is not a number from 1 to 65535"),
        ("LEASE_REDIS_URL", "redis://h/zero", "the number of a database"),
        ("LEASE_REDIS_URL", "redis://h?db=x", "its db must be a number"),
        ("LEASE_REDIS_URL", "redis://h?timeout=3", "has an option 'timeout'"),
        ("LEASE_REDIS_URL", "unix://", "names no socket"),
        ("LEASE_REDIS_URL", "embedded://u:p@dir", "takes a directory and nothing else"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object, said: str) -> None:
    """The error names setting, value and what is allowed, or the nearest word."""
    message = error_of({name: value})
    assert f"{name} = " in message
    assert "allowed: " in message
    assert said in message


def test_one_error_names_all_faults_and_their_sources() -> None:
    """Nobody has to mend settings one run at a time."""
    crawler = crawler_of(
        cmdline={"LEASE_TTL": "soon"}, arguments={"lease_window": "wide"}, LEASE_RUNS_KEEP=0, LEASE_WINDO=3
    )
    with pytest.raises(SettingsError) as caught:
        LeaseSettings.from_crawler(crawler)
    message = str(caught.value)
    assert "LEASE_TTL = 'soon' (-s)" in message
    assert "LEASE_WINDOW = 'wide' (spider attribute lease_window)" in message
    assert "LEASE_RUNS_KEEP = 0 (settings)" in message
    assert "LEASE_WINDO = 3 is no setting of scrapy-lease: did you mean LEASE_WINDOW?" in message
    assert "\n" not in message


def test_settings_error_is_both_kinds() -> None:
    """Callers may catch it as a LeaseError or as a ValueError."""
    assert issubclass(SettingsError, LeaseError)
    assert issubclass(SettingsError, ValueError)


def test_an_unknown_attribute_is_one_notice() -> None:
    """A misspelt attribute is told once with the nearest name; methods and private names are the spider's."""
    spider_class = type("Made", (Shop,), {"lease_tll": 3, "lease_helper": lambda self: 1, "_lease_x": 1})
    crawler = crawler_of(spider_class, arguments={"lease_tll": 4})
    assert LeaseSettings.from_crawler(crawler).notices == (
        "spider attribute lease_tll is no setting of scrapy-lease and is ignored: did you mean lease_ttl?",
    )


def test_redis_url_falls_back_to_scrapy_redis_then_to_alone() -> None:
    """REDIS_URL is taken over; without any URL a notice says that the host crawls alone, unless meant so."""
    shared = LeaseSettings.from_mapping({"REDIS_URL": "redis://h"})
    alone = LeaseSettings.from_mapping({})
    meant = LeaseSettings.from_mapping({"LEASE_REDIS_URL": "embedded://"})
    assert (shared.redis_url, shared.notices) == ("redis://h", ())
    assert (meant.redis_url, meant.notices) == ("embedded://", ())
    assert alone.redis_url == "embedded://"
    assert len(alone.notices) == 1
    assert "this host crawls alone" in alone.notices[0]


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@h:x/0",
        "redis://u:hunter2@h/zero",
        "redis://u:hun/hunter2@h",
        "redis://u:hun#hunter2@h",
        "redis://u:hun@hunter2@h",
        "redis://u:hunter2",
        "redis://hunter2@h/x",
        "unix:///s?db=x&password=hunter2",
        "http://u:hunter2@h",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    """However wrong the URL is, its password is in neither the error nor the chain behind it."""
    with pytest.raises(SettingsError) as caught:
        LeaseSettings.from_mapping({"LEASE_REDIS_URL": url, "LEASE_REDIS_PASSWORD": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "LEASE_REDIS_PASSWORD = *** is no setting" in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_repr_hides_the_password_and_nothing_else() -> None:
    """A logged model tells where the store is, not how to get in."""
    settings = LeaseSettings.from_mapping({"LEASE_REDIS_URL": "redis://u:hunter2@h:1/2?password=hunter2"})
    for text in (repr(settings), str(settings)):
        assert "hunter2" not in text
        assert "redis://u:***@h:1/2?password=***" in text


def test_redacted_url_leaves_a_url_without_secrets_alone() -> None:
    """Host, port, database and directory are no secrets."""
    for url in ("redis://h:6379/0", "redis://[::1]:6379", "embedded:///var/lib", "unix:///run/s.sock?db=1"):
        assert redacted_url(url) == url


def test_job_takes_spider_arguments() -> None:
    """Arguments and plain attributes of the spider name jobs; the instance's value wins."""
    crawler = crawler_of(LEASE_JOB="{spider}-{country}-{page}", arguments={"country": "fr", "page": "7"})
    assert LeaseSettings.from_crawler(crawler).job == "shop-fr-7"
    assert LeaseSettings.from_crawler(crawler_of(LEASE_JOB="{spider}-{country}")).job == "shop-de"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{spider}-{cuntry}", "names 'cuntry', which this spider lacks; it has spider, "),
        ("{spider}-{cuntry}", "did you mean country?"),
        ("{spider.logger}", "names 'spider.logger'"),
        ("{spider", "a brace without the other; write {{ or }}"),
        ("{spider:{width}}", "inside a format"),
        ("{empty}", "is empty"),
    ],
)
def test_a_job_that_cannot_be_named_is_refused(template: str, said: str) -> None:
    """An unknown field is named with those that exist."""
    crawler = crawler_of(LEASE_JOB=template, arguments={"empty": ""})
    with pytest.raises(SettingsError, match="LEASE_JOB = ") as caught:
        LeaseSettings.from_crawler(crawler)
    assert said in str(caught.value)


def test_without_a_spider_the_job_keeps_its_braces() -> None:
    """`scrapy shell` and the command line know no spider arguments, which is no fault of the settings."""
    crawler = Crawler(Shop, Settings({"LEASE_JOB": "{spider}-{depth}", "LEASE_REDIS_URL": "redis://h"}))
    assert LeaseSettings.from_crawler(crawler).job == "{spider}-{depth}"
    named = LeaseSettings.from_mapping({"LEASE_JOB": "{spider}-x"}, job_fields={"spider": "shop"})
    assert named.job == "shop-x"


def test_item_key() -> None:
    """The spider's method wins over what the setting says, the dotted path over the fingerprint."""
    method = {"lease_item_key": lambda self, request: f"own {request.url}"}
    own = crawler_of(type("Made", (Shop,), method), LEASE_ITEM_KEY="fingerprint")
    path = crawler_of(LEASE_ITEM_KEY=f"{HERE}.constant_key")
    plain = crawler_of()
    keys = {}
    for crawler in (own, path, plain):
        settings = LeaseSettings.from_crawler(crawler)
        assert crawler.spider is not None
        item_keys = ItemKeys(crawler.spider, settings.item_key, RequestFingerprinter(crawler))
        keys[settings.item_key] = item_keys.key_of(Request("http://h/"))
    fingerprint = RequestFingerprinter(plain).fingerprint(Request("http://h/")).hex()
    assert keys == {"spider": "own http://h/", f"{HERE}.constant_key": "shop GET", "fingerprint": fingerprint}


def test_spider_key_needs_the_method() -> None:
    """`spider` stands for the method; given by hand without one there would be no key."""
    assert "LEASE_ITEM_KEY = 'spider'" in error_of({"LEASE_ITEM_KEY": "spider"})


def test_settings_are_frozen() -> None:
    """What was checked stays as it was checked."""
    with pytest.raises(ValueError, match="frozen"):
        LeaseSettings.from_mapping({}).ttl = 5


def test_reference_is_made_from_the_model() -> None:
    """docs/settings.md is what `make docs` prints, and has one row for each setting."""
    text = REFERENCE.read_text()
    assert text == reference(LeaseSettings)
    for field in LeaseSettings.model_fields:
        assert text.count(f"| `LEASE_{field.upper()}` |") == 1
