"""The add-on puts components in their places, and refuses what it cannot work with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.commands import fetch
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from scrapy_lease.addon import COMPONENTS, PROXIES, RATES, SCHEDULERS, gate_handlers, has_foreign_scheduler
from scrapy_lease.addon import GUARD as GUARDED
from scrapy_lease.exceptions import SettingsError
from scrapy_lease.scheduler import LeaseScheduler

SCHEDULER = SCHEDULERS["redis"]

ADDON = "scrapy_lease.addon.Addon"
PLACES = [(name, path, order) for name, parts in COMPONENTS.items() for path, order in parts.items()]
GUARD = "scrapy_lease.middlewares.downloader.GuardMiddleware"


class Shop(Spider):
    name = "shop"


def loaded(
    *, spider_class: type[Spider] | None = Shop, cmdline: dict[str, Any] | None = None, **project: Any
) -> Settings:
    """The settings after Scrapy's own add-on manager ran the add-on."""
    settings = Settings({"ADDONS": {ADDON: 500}, "LEASE_REDIS_URL": "redis://localhost", **project})
    settings.update(cmdline or {}, priority="cmdline")
    crawler = Crawler(spider_class or Shop, settings)
    crawler.spider = spider_class.from_crawler(crawler) if spider_class else None
    crawler.addons.load_settings(crawler.settings)
    return crawler.settings


def installed(settings: Settings) -> list[str]:
    placed = [path for name, path, _ in PLACES if path in settings.getdict(name)]
    return placed + [SCHEDULER] * (settings["SCHEDULER"] == SCHEDULER)


def test_everything_is_put_in_its_place() -> None:
    """One line in ADDONS is enough: every component has its number, and the user's own stay."""
    settings = loaded(EXTENSIONS={"their.Extension": 7}, DOWNLOADER_MIDDLEWARES={"their.Middleware": 8})
    assert {(name, path): settings.getdict(name)[path] for name, path, _ in PLACES} == {
        (name, path): order for name, path, order in PLACES
    }
    assert settings["SCHEDULER"] == SCHEDULER
    assert settings.getdict("EXTENSIONS")["their.Extension"] == 7
    assert settings.getdict("DOWNLOADER_MIDDLEWARES")["their.Middleware"] == 8


def test_components_are_added_whatever_set_the_dict() -> None:
    """A dict from custom_settings or -s outranks an add-on, and still gets the components."""
    spider_class = type("Made", (Shop,), {"custom_settings": {"EXTENSIONS": {"their.Extension": 7}}})
    settings = loaded(spider_class=spider_class, cmdline={"SPIDER_MIDDLEWARES": '{"their.Middleware": 8}'})
    assert len(installed(settings)) == len(PLACES) + 1


def test_a_component_listed_by_hand_keeps_its_number() -> None:
    """The user's number wins over ours, and the component is not there twice."""
    settings = loaded(DOWNLOADER_MIDDLEWARES={GUARD: 901})
    ours = COMPONENTS["DOWNLOADER_MIDDLEWARES"]
    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {**ours, GUARD: 901}


def test_a_component_taken_out_by_hand_refuses() -> None:
    """One part less would be a protection that is silently off."""
    with pytest.raises(SettingsError, match=r"GuardMiddleware.*LEASE_ENABLED = False"):
        loaded(DOWNLOADER_MIDDLEWARES={GUARD: None})


@pytest.mark.parametrize("name", ["LEASE_ENABLED", "LEASE_ITEMS_ENABLED"])
def test_off_installs_nothing_and_says_so_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Switched off is one warning and nothing else, not even a refusal of another scheduler."""
    settings = loaded(**{name: False}, SCHEDULER="their.Scheduler")
    assert installed(settings) == []
    assert settings["SCHEDULER"] == "their.Scheduler"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"{name} is False" in warnings[0]


def test_off_still_checks_values() -> None:
    """A wrong value is found when it is written, not when leases are turned on again."""
    with pytest.raises(SettingsError, match="LEASE_TTL = 'soon'"):
        loaded(LEASE_ENABLED=False, LEASE_TTL="soon")


def proxied(settings: Settings) -> dict[str, int]:
    paths = PROXIES["DOWNLOADER_MIDDLEWARES"]
    return {path: order for path, order in settings.getdict("DOWNLOADER_MIDDLEWARES").items() if path in paths}


def test_proxies_are_put_in_their_places_where_there_are_any() -> None:
    """Two middlewares more, at their numbers; without proxies, or with proxies off, none."""
    some = {"LEASE_PROXIES": ["http://proxy.example:1"]}
    assert proxied(loaded(**some)) == PROXIES["DOWNLOADER_MIDDLEWARES"]
    assert proxied(loaded()) == proxied(loaded(**some, LEASE_PROXY_ENABLED=False)) == {}
    assert proxied(loaded(**some, LEASE_ENABLED=False)) == {}


def test_proxies_without_items(caplog: pytest.LogCaptureFixture) -> None:
    """LEASE_ITEMS_ENABLED = False with proxies: the scheduler with a host's own queues, and one warning."""
    settings = loaded(LEASE_PROXIES=["http://proxy.example:1"], LEASE_ITEMS_ENABLED=False)
    assert settings["SCHEDULER"] == SCHEDULERS["local"]
    assert len(proxied(settings)) == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == "LEASE_ITEMS_ENABLED is False: this crawl leases proxies, and no items"


def test_a_command_that_leases_no_proxies_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """`scrapy shell` and its like fetch directly: nothing configured is silently off."""
    assert proxied(loaded(spider_class=None, LEASE_PROXIES=["http://proxy.example:1"])) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "This command leases no proxies: what it fetches goes directly to the site"
    ]


def limited(settings: Settings) -> dict[str, int]:
    """The middlewares of rate limits that are in their places."""
    paths = RATES["DOWNLOADER_MIDDLEWARES"]
    return {path: order for path, order in settings.getdict("DOWNLOADER_MIDDLEWARES").items() if path in paths}


def test_rate_limits_are_put_in_their_places_where_there_are_any() -> None:
    """Two middlewares more, at their numbers; without limits, or with limits off, none."""
    some = {"LEASE_RATE_LIMITS": {"api": "5/second"}}
    assert limited(loaded(**some)) == RATES["DOWNLOADER_MIDDLEWARES"]
    assert limited(loaded()) == limited(loaded(**some, LEASE_RATE_ENABLED=False)) == {}
    assert limited(loaded(**some, LEASE_ENABLED=False)) == {}


@pytest.mark.parametrize(
    ("more", "warning"),
    [
        (
            {"LEASE_ITEMS_ENABLED": False},
            "LEASE_ITEMS_ENABLED is False: this crawl keeps rate limits and leases no items",
        ),
        ({"LEASE_RATE_ENABLED": False}, "LEASE_RATE_ENABLED is False: no rate limit is kept"),
        ({"spider_class": None}, "This command keeps no rate limits: what it fetches is counted nowhere"),
    ],
)
def test_what_is_off_of_rate_limits_is_told(caplog: pytest.LogCaptureFixture, more: Any, warning: str) -> None:
    """Items off, limits off, a command that takes no leases: one warning each."""
    loaded(LEASE_RATE_LIMITS={"api": "5/second"}, **more)
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.endswith(warning)


def test_shell_takes_no_leases() -> None:
    """`scrapy shell` has no spider when add-ons are loaded: values are checked, nothing is installed."""
    assert installed(loaded(spider_class=None, SCHEDULER="their.Scheduler")) == []
    with pytest.raises(SettingsError, match="LEASE_TTL = 'soon'"):
        loaded(spider_class=None, LEASE_TTL="soon")


def test_a_command_that_replaces_start_takes_no_leases() -> None:
    """`scrapy fetch`, `view`, `parse` and `check` give the spider a start() of their own module."""

    async def start(self: Spider) -> Any:
        yield None

    start.__module__ = fetch.__name__
    assert installed(loaded(spider_class=type("Made", (Shop,), {"start": start}))) == []


def guarded(settings: Settings) -> list[str]:
    return [path for name, parts in GUARDED.items() for path in parts if path in settings.getdict(name)]


@pytest.mark.parametrize("chosen", ["scrapy.core.scheduler.Scheduler", Scheduler, "their.Scheduler"])
@pytest.mark.parametrize("queue", ["redis", "local"])
def test_another_scheduler_stays_and_is_guarded(chosen: object, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """A scheduler that the user chose is neither replaced nor left unguarded, whatever LEASE_QUEUE is: one INFO."""
    caplog.set_level("INFO", "scrapy_lease")
    settings = loaded(SCHEDULER=chosen, LEASE_QUEUE=queue)
    assert settings["SCHEDULER"] is chosen
    assert len(guarded(settings)) == 2
    assert {(name, path): settings.getdict(name)[path] for name, path, _ in PLACES} == {
        (name, path): order for name, path, order in PLACES
    }
    (said,) = [record.getMessage() for record in caplog.records if record.name == "scrapy_lease.addon"]
    assert said.startswith(f"SCHEDULER = {chosen!r} stays as it is")


def test_a_scheduler_of_ours_is_not_guarded() -> None:
    """The default, ours by name, and a class derived from ours lease by themselves."""
    derived = type("Derived", (LeaseScheduler,), {})
    for settings in (loaded(), loaded(SCHEDULER=SCHEDULER), loaded(SCHEDULER=derived)):
        assert guarded(settings) == []
        assert not has_foreign_scheduler(settings)


def test_our_scheduler_by_hand_is_fine() -> None:
    """Listing by hand what the add-on would put there changes nothing."""
    assert len(installed(loaded(SCHEDULER=SCHEDULER))) == len(PLACES) + 1


@pytest.mark.parametrize("chosen", ["twisted.internet.epollreactor.EPollReactor", "no.such.Reactor"])
def test_another_reactor_refuses(chosen: str) -> None:
    """The store is spoken to on asyncio's loop: without it nothing may be fetched."""
    with pytest.raises(SettingsError, match="needs the asyncio reactor"):
        loaded(TWISTED_REACTOR=chosen)


@pytest.mark.parametrize(
    "project",
    [
        {"TWISTED_REACTOR_ENABLED": False, "TWISTED_REACTOR": "twisted.internet.epollreactor.EPollReactor"},
        {"TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor"},
    ],
)
def test_asyncio_with_or_without_a_reactor_is_fine(project: dict[str, Any]) -> None:
    """The reactorless mode runs on asyncio, whatever TWISTED_REACTOR says."""
    assert len(installed(loaded(**project))) == len(PLACES) + 1


def gate_of(scheme: str, original: Any) -> type:
    return type("Gate", (), {"scheme": scheme, "original": original})


def gated(settings: Settings) -> dict[str, tuple[str, Any]]:
    gate_handlers(settings, gate_of)
    merged = settings.getwithbase("DOWNLOAD_HANDLERS")
    return {scheme: (gate.scheme, gate.original) for scheme, gate in merged.items() if gate is not None}


def test_every_enabled_handler_is_gated() -> None:
    """Base, project, custom and -s handlers alike; a scheme that was turned off stays off."""
    spider_class = type("Made", (Shop,), {"custom_settings": {"DOWNLOAD_HANDLERS": {"x": "their.X", "ftp": None}}})
    before = loaded(spider_class=spider_class).getwithbase("DOWNLOAD_HANDLERS")
    handlers = gated(loaded(spider_class=spider_class))
    assert handlers == {name: (name, path) for name, path in before.items() if path is not None}
    assert {"http", "https", "data", "file", "s3", "x"} == handlers.keys()

    by_cmdline = loaded(cmdline={"DOWNLOAD_HANDLERS": '{"http": "their.Http"}'})
    assert gated(by_cmdline)["http"] == ("http", "their.Http")


class Probe:
    """An extension that gates the handlers as soon as it is built, and keeps the settings."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Probe:
        gate_handlers(crawler.settings, gate_of)
        return cls()


def test_an_extension_is_early_enough_and_late_enough_to_gate() -> None:
    """When Scrapy builds extensions, the reactorless handlers are known and settings can still be changed."""
    script = f"""if 1:
        from scrapy.crawler import Crawler
        from scrapy.settings import Settings
        from {__name__} import Probe, Shop
        crawler = Crawler(Shop, Settings({{"TWISTED_REACTOR_ENABLED": False, "EXTENSIONS": {{Probe: 0}}}}))
        crawler.spider = Shop.from_crawler(crawler)
        crawler._apply_settings()
        assert crawler.settings.frozen
        gates = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        print(gates["https"].original, gates["ftp"])"""
    ended = run_python("-c", script)
    assert ended.stdout.split() == [
        "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler",
        "None",
    ], ended.stderr


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_refused_crawl_exits_1_with_one_record_of_ours(tmp_path: Path) -> None:
    """`scrapy runspider` with a wrong setting: exit status 1, one ERROR of ours, nothing fetched."""
    spider = tmp_path / "spider.py"
    spider.write_text(
        "import scrapy\n\n"
        "class Shop(scrapy.Spider):\n    name = 'shop'\n    start_urls = ['data:,page']\n\n"
        "    def parse(self, response):\n        print('FETCHED')\n"
    )
    addon = f'{{"{ADDON}": 500}}'
    ended = run_python("-m", "scrapy", "runspider", str(spider), "-s", f"ADDONS={addon}", "-a", "lease_ttl=soon")
    assert ended.returncode == 1
    assert "FETCHED" not in ended.stdout
    ours = [line for line in ended.stderr.splitlines() if "[scrapy_lease" in line]
    assert len(ours) == 1
    assert "ERROR: scrapy-lease cannot start: LEASE_TTL = 'soon' (spider attribute lease_ttl)" in ours[0]
