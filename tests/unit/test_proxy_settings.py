"""Settings of proxies and verdicts: pools, routes, what is refused, and that no secret is shown."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from scrapy import Request

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.settings.pools import ACCOUNTS, PROXIES, Kind
from scrapy_lease.settings.proxy_values import VERDICTS, Word

HERE = "tests.unit.test_proxy_settings"
ONE = {"LEASE_PROXIES": ["http://user:hunter2@proxy.example:8080"]}


class Policy:
    def judge(self, request: Any, response: Any, exception: Any) -> str | None:
        return None


class Provider:
    async def fetch(self, count: int) -> list[Any]:
        return []


def settings_of(**values: Any) -> LeaseSettings:
    return LeaseSettings.from_mapping({"LEASE_REDIS_URL": "redis://h", **values})


def error_of(**values: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(**values)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


def test_without_proxies_there_is_no_pool() -> None:
    """Nothing is leased through proxies unless somebody says where they come from."""
    assert settings_of().pools == {}


def test_the_top_level_is_the_pool_default() -> None:
    """LEASE_PROXY_X is field x of the pool `default`; its defaults are those of the contract."""
    pool = settings_of(**ONE).pools["default"]
    assert (pool.concurrency, pool.reuse, pool.keep, pool.batch, pool.min_free) == (1, 0, 10, 20, 10)
    assert (pool.margin, pool.backoff, pool.retries, pool.grace, pool.wait) == (10, (30, 3600), 5, 0, 60)
    assert (pool.sessions, pool.lifetime, pool.check, pool.check_timeout) == (100, 600, None, 10)
    assert (pool.sticky, pool.sticky_ttl, pool.buy_limit, pool.source) == (None, 86400, None, "proxies")
    assert settings_of(**ONE, LEASE_PROXY_CONCURRENCY="3").pools["default"].concurrency == 3


@pytest.mark.parametrize("kind", [PROXIES, ACCOUNTS], ids=lambda kind: kind.name)
def test_a_field_of_a_pool_has_the_type_of_its_setting(kind: Kind[Any]) -> None:
    """What may stand at the top level may stand in a pool, and nothing else."""
    for field, top in kind.top.items():
        ours = kind.pool.model_fields[field]
        theirs = next(section.model_fields[top] for section in kind.sections if top in section.model_fields)
        assert (ours.annotation, repr(ours.metadata)) == (theirs.annotation, repr(theirs.metadata)), field
    assert set(kind.pool.sources) < kind.top.keys()


def test_named_pools() -> None:
    """A pool takes the settings of its own; how its proxies are used it inherits, where they come from it does not."""
    pools = settings_of(
        **ONE,
        LEASE_PROXY_WAIT=7,
        LEASE_PROXY_BUY_LIMIT="400/minute",
        LEASE_PROXY_POOLS='{"resi": {"proxies": ["http://a:1"], "concurrency": "2"}, "manual": {}}',
    ).pools
    assert list(pools) == ["default", "resi", "manual"]
    assert (pools["resi"].concurrency, pools["resi"].wait, pools["resi"].buy_limit) == (2, 7, None)
    assert (pools["resi"].source, pools["manual"].source, pools["manual"].proxies) == ("proxies", "", None)


def test_a_pool_default_may_be_among_the_named() -> None:
    """An operator fills it; the other settings hold for it as for any."""
    pools = settings_of(LEASE_PROXY_POOLS={"default": {}}, LEASE_PROXY_KEEP=3).pools
    assert (pools["default"].source, pools["default"].keep) == ("", 3)


def test_switched_off() -> None:
    """LEASE_PROXY_ENABLED = False leases none, and values are still checked."""
    assert settings_of(**ONE, LEASE_PROXY_ENABLED="no").pools == {}
    assert "LEASE_PROXY_WAIT = 0" in error_of(**ONE, LEASE_PROXY_ENABLED=False, LEASE_PROXY_WAIT=0)


def test_without_items_a_host_keeps_its_own_requests() -> None:
    """LEASE_ITEMS_ENABLED = False with proxies: no item is leased, requests wait in Scrapy's own queues."""
    settings = settings_of(**ONE, LEASE_ITEMS_ENABLED=False)
    assert (settings.queue, settings.rollout, list(settings.pools)) == ("local", 0.0, ["default"])
    assert settings_of(LEASE_ITEMS_ENABLED=False).queue == "redis"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"LEASE_PROXY_CONCURRENCY": 0}, "LEASE_PROXY_CONCURRENCY = 0 (settings) is not allowed; allowed: a whole"),
        ({"LEASE_PROXY_BACKOFF": (60, 5)}, "LEASE_PROXY_BACKOFF = (60, 5) (settings) the first wait is longer"),
        ({"LEASE_PROXY_STICKY": "acount"}, "LEASE_PROXY_STICKY = 'acount'"),
        ({"LEASE_PROXY_CHECK": "proxy.example"}, "is no http:// or https:// URL"),
        ({"LEASE_PROXY_CONCURENCY": 2}, "did you mean LEASE_PROXY_CONCURRENCY?"),
        ({"LEASE_PROXIE": ["http://u:hunter2@h"]}, "LEASE_PROXIE = *** is no setting"),
        ({"LEASE_PROXY_POOLS": ["http://u:hunter2@h"]}, "is no dict of dicts"),
        ({"LEASE_PROXY_POOLS": "{"}, "is no JSON"),
        ({"LEASE_PROXY_POOLS": {"a b": {}}}, "'a b' is no name for a pool"),
        ({"LEASE_PROXY_POOLS": {"default": {}}}, "make that pool already"),
        ({"LEASE_PROXY_POOLS": {"resi": {"concurency": 2}}}, "pool 'resi': 'concurency' is no setting of a pool: d"),
        ({"LEASE_PROXY_POOLS": {"resi": {"concurrency": 0}}}, "pool 'resi': concurrency = 0 is not allowed; a"),
        (
            {"LEASE_PROXY_POOLS": {"resi": {"proxies": ["http://a:1"], "provider": f"{HERE}.Provider"}}},
            "pool 'resi': a pool has one source, and proxies and provider are given",
        ),
        ({"LEASE_PROXY_PROVIDER": "no.such.Shop"}, "LEASE_PROXY_PROVIDER = 'no.such.Shop' (settings) cannot be"),
        ({"LEASE_PROXY_PROVIDER": f"{HERE}.Provider"}, "a pool has one source, and proxies and provider are given"),
        ({"LEASE_PROXY_POOL": "resi"}, "names the pool 'resi', which does not exist; there is default"),
        ({"LEASE_PROXIES": ["http://u-{sesion}:p@h:1"]}, "has braces that are no {session}, {session:8} or {account}"),
        ({"LEASE_PROXIES": ["http://u-{Acount}:p@h:1"]}, "has braces that are no {session}, {session:8} or {account}"),
        ({"LEASE_PROXY_POOL": "defualt"}, "which does not exist: did you mean default?"),
        ({"LEASE_PROXY_POOL": {"*": ["default", "dc"]}}, "names the pool 'dc'"),
        ({"LEASE_POLICY": "no.such.Policy"}, "cannot be imported"),
        ({"LEASE_POLICY": f"{HERE}.Provider"}, "has no method judge"),
        ({"LEASE_POLICY": f"{HERE}.settings_of"}, "is no class"),
        ({"LEASE_VERDICTS": {403: "bann"}}, "403: 'bann' is no verdict; allowed: a dict of statuses"),
        ({"LEASE_VERDICTS": {"4o3": "ban"}}, "'4o3' is no status"),
        ({"LEASE_VERDICTS": {True: "ban"}}, "True is no status"),
        ({"LEASE_VERDICTS": "ban"}, "is no mapping"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(values: dict[str, Any], said: str) -> None:
    """The error names setting and pool, what is allowed and the nearest name, and shows no password."""
    assert said in error_of(**{**ONE, **values})


@pytest.mark.parametrize("name", ["LEASE_PROXY_WAIT", "LEASE_VERDICTS", "LEASE_POLICY", "LEASE_PROXY_POOL"])
def test_what_has_nothing_to_act_on_is_refused(name: str) -> None:
    """Nothing configured is silently off: without proxies no setting of theirs, and no verdict, would do anything."""
    value = {"LEASE_PROXY_WAIT": 5, "LEASE_VERDICTS": {403: "ok"}, "LEASE_POLICY": f"{HERE}.Policy"}
    error = error_of(**{name: value.get(name, "default")})
    assert name in error
    assert ": there are no proxies" in error
    assert name != "LEASE_PROXY_WAIT" or "LEASE_PROXY_WAIT = 5.0: there" in error


def test_verdicts_are_laid_over_the_defaults() -> None:
    """A status that is given is added or replaced, None takes one out; text of -s is read as JSON."""
    assert settings_of(**ONE).verdicts == VERDICTS
    expected = {**VERDICTS, 503: "ban"}
    del expected[403]
    assert settings_of(**ONE, LEASE_VERDICTS={503: "ban", 403: None}).verdicts == expected
    assert settings_of(**ONE, LEASE_VERDICTS='{"503": "ban", "403": null}').verdicts == expected


def test_a_policy_is_a_class_or_its_path() -> None:
    """Both mean the same."""
    assert settings_of(**ONE, LEASE_POLICY=f"{HERE}.Policy").policy.__qualname__ == "Policy"
    assert settings_of(**ONE, LEASE_POLICY=Policy).policy is Policy


def test_repr_hides_where_proxies_come_from() -> None:
    """Neither the settings nor a pool shows a URL of a proxy, an API or its key."""
    settings = settings_of(
        **ONE, LEASE_PROXY_POOLS={"resi": {"api": {"url": "http://hunter2", "items": "x", "endpoint": "y"}}}
    )
    for text in (repr(settings), str(settings), repr(settings.pools), str(settings.pools["resi"])):
        assert "hunter2" not in text
        assert "proxies=***" in text or "api=***" in text or "proxies='***'" in text or "api='***'" in text


ROUTED = ONE | {"LEASE_PROXY_POOLS": {"resi": {}, "dc": {}}}


def way(route: Any, url: str, *, is_media: bool = False) -> Any:
    return settings_of(**ROUTED, LEASE_PROXY_POOL=route).proxy_pool.way_of(Request(url).url, is_media=is_media)


@pytest.mark.parametrize(
    ("route", "expected"), [("resi", ("resi",)), (["dc", "resi"], ("dc", "resi")), (False, None), ("false", None)]
)
def test_one_way_for_all(route: Any, expected: Any) -> None:
    """A name, a list of names or False holds for every request, media too."""
    assert way(route, "http://site.example/") == way(route, "https://o.example/", is_media=True) == expected


def test_the_first_route_that_matches_counts() -> None:
    """Prefixes and expressions in order, `media` before them for what is downloaded beside, `*` whatever its place."""
    route = {
        "*": "dc",
        "https://Shop.example/api/": False,
        "https://shop.example": ["dc", "resi"],
        r"re:\.png$": "resi",
        "media": "default",
    }
    assert way(route, "https://shop.example/api/1") is None
    assert way(route, "https://shop.example/api") == ("dc", "resi")
    assert way(route, "https://shop.example") == ("dc", "resi")
    assert way(route, "https://shop.example.evil.example/") == ("dc",)
    assert way(route, "http://else.example/a.png") == ("resi",)
    assert way(route, "http://else.example/a.png", is_media=True) == ("default",)
    del route["media"]
    assert way(route, "http://else.example/a.png", is_media=True) == ("resi",)


def test_what_no_route_takes_goes_through_the_pool_default() -> None:
    """Never directly, unless somebody says so; and where there is no such pool, it is refused at the start."""
    assert way({"https://shop.example/": False}, "https://other.example/") == ("default",)
    pools = {"LEASE_PROXY_POOLS": {"resi": {}}, "LEASE_PROXY_POOL": {"https://shop.example/": "resi"}}
    assert "names the pool 'default', which does not exist" in error_of(**pools)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({}, "is an empty mapping"),
        ({"shop.example": "resi"}, "'shop.example' can match nothing"),
        ({"": "resi"}, "'' can match nothing"),
        ({"ftp://shop.example/": "resi"}, "can match nothing"),
        ({"https://": "resi"}, "can match nothing"),
        ({"https://*.example/": "resi"}, "can match nothing"),
        ({"http://[": "resi"}, "can match nothing"),
        ({7: "resi"}, "7 is no route"),
        ({"re:(": "resi"}, "'re:(' is no regular expression"),
        ({"http://a.example": "dc", "http://a.example/x": "resi"}, "'http://a.example' stands before it"),
        ({"http://a.example/x": None}, "'http://a.example/x': None is neither the name of a pool"),
        ({"*": []}, "'*': [] is neither the name of a pool"),
        ({"*": ["resi", 3]}, "is neither the name of a pool"),
        (7, "7 is neither the name of a pool"),
        ('{"*"', "is no JSON"),
    ],
)
def test_a_wrong_route_is_refused(route: Any, said: str) -> None:
    """What can match nothing, names nothing, or is no expression, was meant for some requests."""
    message = error_of(**ROUTED, LEASE_PROXY_POOL=route)
    assert said in message
    assert "LEASE_PROXY_POOL = " in message


def test_every_verdict_word_is_known_to_the_reference() -> None:
    """The words that a policy may return are those that the reference lists."""
    allowed = LeaseSettings.model_fields["verdicts"].json_schema_extra
    assert isinstance(allowed, dict)
    for word in get_args(Word):
        assert f'"{word}"' in str(allowed["allowed"])


def test_a_path_is_shown_and_nothing_that_may_be_a_password() -> None:
    """Of LEASE_PROXIES that lead to no file the error shows the path; what has the marks of a proxy stays hidden."""
    assert "LEASE_PROXIES = 'conf/proxys.txt' (settings) is neither" in error_of(LEASE_PROXIES="conf/proxys.txt")
    said = error_of(LEASE_PROXY_POOLS={"resi": {"proxies": "conf/proxys.txt"}})
    assert "pool 'resi': proxies = 'conf/proxys.txt' is neither" in said
    for value in ("u:hunter2@h:80", "h:80:u:hunter2", "h u hunter2", "[http://u:hunter2@h", ["http://u:hunter2@h"]):
        for given in ({"LEASE_PROXIES": value}, {"LEASE_PROXY_POOLS": {"resi": {"proxies": value}}}):
            said = error_of(**given)
            assert "***" in said
            assert "hunter2" not in said
