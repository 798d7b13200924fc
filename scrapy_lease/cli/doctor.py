"""``scrapy-lease doctor``: whether crawls can work together here, and what to do where they cannot."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import click
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.misc import load_object
from twisted.internet.asyncioreactor import AsyncioSelectorReactor

from scrapy_lease.accounts.sealing import Sealer, WrongKey, prove_key
from scrapy_lease.addon import SCHEDULERS
from scrapy_lease.cli import json_option, store_options
from scrapy_lease.cli.store_access import opened, project_settings
from scrapy_lease.exceptions import SettingsError, StoreError, StoreRefused, StoreUnavailable
from scrapy_lease.settings import LeaseSettings, redacted_url
from scrapy_lease.store.tools import Tools

#: Seconds by which this host's clock may be off before it is worth a word: expiry dates are compared with the server's.
CLOCK_TOLERANCE = 5.0
#: Share of maxmemory above which pushes may soon be refused.
FULL = 0.8
#: Seconds over which the lease clock is watched.
WATCHED = 0.3

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: *text* says what is so, *advice* what to do about it."""

    check: str
    verdict: Literal["ok", "warn", "fail"]
    text: str
    advice: str = ""


@click.command(name="doctor")
@store_options
@json_option
def command(as_json: bool) -> None:
    """Check the settings, the store and the clocks; exit with 1 if something fails."""
    settings = project_settings()
    findings = [*_setting_findings(settings), *_store_findings(settings)]
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            advice = f"\n      -> {finding.advice}" if finding.advice else ""
            click.echo(f"{_MARKS[finding.verdict]}  {finding.check}: {finding.text}{advice}")
    sys.exit(any(finding.verdict == "fail" for finding in findings))


def _setting_findings(settings: Settings) -> Iterator[Finding]:
    try:
        lease = LeaseSettings.from_mapping(settings)
        yield Finding("settings", "ok", f"namespace {lease.namespace!r}, store {redacted_url(lease.redis_url)}")
        for notice in lease.notices:
            yield Finding("settings", "warn", notice)
        for name, on in (("LEASE_ENABLED", lease.enabled), ("LEASE_ITEMS_ENABLED", lease.items_enabled)):
            if not on:
                yield Finding("settings", "warn", f"{name} is False: crawls lease nothing", "take it out to lease")
    except SettingsError as error:
        yield Finding("settings", "fail", str(error), "correct them in settings.py or where they are given")
    if settings.getlist("SPIDER_MODULES"):
        yield from _project_findings(settings)
    yield _reactor_finding(settings)


def _project_findings(settings: Settings) -> Iterator[Finding]:
    addons = [str(getattr(addon, "__name__", addon)) for addon in settings.getdict("ADDONS")]
    if any(addon.rsplit(".", 1)[-1] == "Addon" for addon in addons) or settings["SCHEDULER"] in SCHEDULERS.values():
        yield Finding("add-on", "ok", "switched on")
    else:
        advice = 'set ADDONS = {"scrapy_lease.Addon": 500} in settings.py'
        yield Finding("add-on", "fail", "crawls of this project lease nothing", advice)
    try:
        loader = get_spider_loader(settings)
        for name in sorted(loader.list()):
            yield from _spider_findings(Crawler(loader.load(name), settings.copy()))
    except Exception as error:
        advice = "`scrapy list` shows the traceback"
        yield Finding("spiders", "fail", f"cannot be loaded: {type(error).__name__}: {error}", advice)


def _spider_findings(crawler: Crawler) -> Iterator[Finding]:
    """What the attributes and custom settings of a spider add to what is wrong."""
    name = crawler.spidercls.name
    try:
        LeaseSettings.from_crawler(crawler)
    except SettingsError as error:
        yield Finding(f"spider {name}", "fail", str(error), "correct its attributes or custom_settings")


def _reactor_finding(settings: Settings) -> Finding:
    if not settings.getbool("TWISTED_REACTOR_ENABLED"):
        return Finding("reactor", "ok", "none (TWISTED_REACTOR_ENABLED is off)")
    chosen = settings["TWISTED_REACTOR"]
    advice = "take TWISTED_REACTOR out of the settings"
    if not chosen:
        return Finding("reactor", "warn", "TWISTED_REACTOR is empty: only the asyncio reactor will do", advice)
    try:
        is_asyncio = issubclass(load_object(chosen), AsyncioSelectorReactor)
    except Exception as error:
        return Finding("reactor", "fail", f"TWISTED_REACTOR = {chosen!r} cannot be loaded: {error}", advice)
    if is_asyncio:
        return Finding("reactor", "ok", "asyncio")
    return Finding("reactor", "fail", f"TWISTED_REACTOR = {chosen!r} is not the asyncio reactor", advice)


def _store_findings(settings: Settings) -> list[Finding]:
    """What the store says, as far as the settings tell which it is."""
    try:
        lease = LeaseSettings.from_mapping(settings)
    except SettingsError:
        return [Finding("store", "fail", "was not looked at, as the settings are wrong")]

    async def look() -> list[Finding]:
        findings: list[Finding] = []
        try:
            async with opened(lease) as tools:
                async for finding in _ask(tools):
                    findings.append(finding)
                if lease.account_pools_by_name:
                    findings.append(await _key_finding(tools, lease))
        except StoreError as error:
            away = isinstance(error, StoreUnavailable) and not findings
            advice = "start it, or correct LEASE_REDIS_URL" if away else "see to the server's settings and its log"
            findings.append(Finding("store", "fail", str(error), advice))
        return findings

    return asyncio.run(look())


async def _ask(tools: Tools) -> AsyncIterator[Finding]:
    sent = time.monotonic()
    await tools.command("PING")
    trip = (time.monotonic() - sent) * 1000
    yield Finding("store", "ok", f"{tools.channel.shown} answers, PING takes {trip:.1f} ms")
    info = _info(await tools.command("INFO"))
    yield _version_finding(info)
    await tools.command("SET", f"{tools.namespace.prefix}:doctor", 1, "PX", 1000)
    yield Finding("writes", "ok", "are accepted")
    yield await _append_only_finding(tools, info)
    yield _memory_finding(info)
    yield await _host_clock_finding(tools)
    yield await _lease_clock_finding(tools)


async def _key_finding(tools: Tools, lease: LeaseSettings) -> Finding:
    """Can this host read what others store of accounts?"""
    sealer = Sealer(lease.account_key or "")
    try:
        is_known = await prove_key(tools, sealer)
    except WrongKey as error:
        return Finding("accounts", "fail", str(error), "set the LEASE_ACCOUNT_KEY of the other hosts here")
    pools = ", ".join(lease.account_pools_by_name)
    key = "what others store can be read here" if is_known else "nobody has stored any yet"
    return Finding("accounts", "ok", f"pools {pools}; {key}")


def _version_finding(info: dict[str, str]) -> Finding:
    """An older server never gets here: the connection refuses it."""
    name = info.get("server_name", "redis")
    version = info.get(f"{name}_version", info["redis_version"])
    return Finding("version", "ok", f"{name} {version} (6.2 or later is needed)")


async def _append_only_finding(tools: Tools, info: dict[str, str]) -> Finding:
    if info.get("aof_enabled") != "1":
        text = "is off: a restart of the server loses what was not saved: queue, leases and marks"
        return Finding("append-only file", "warn", text, "set appendonly yes and appendfsync everysec on the server")
    if info.get("aof_last_write_status", "ok") != "ok":
        advice = "see the server's log and the space of its disk"
        return Finding("append-only file", "fail", "the last write to it failed", advice)
    sync = await _appendfsync(tools)
    if sync == "no":
        text = "appendfsync is no: a crash of the machine may lose half a minute"
        return Finding("append-only file", "warn", text, "set appendfsync everysec on the server")
    return Finding("append-only file", "ok", f"is on, appendfsync {sync}")


async def _appendfsync(tools: Tools) -> str:
    try:
        reply = await tools.command("CONFIG", "GET", "appendfsync")
    except StoreRefused:
        return "not shown to this user"
    return reply[1].decode() if reply else "not shown by this server"


def _memory_finding(info: dict[str, str]) -> Finding:
    """A server that does evict never gets here: the connection refuses it."""
    policy = info.get("maxmemory_policy", "")
    limit, used = (int(info.get(name, 0)) for name in ("maxmemory", "used_memory"))
    if policy not in ("noeviction", ""):
        text = f"maxmemory-policy is {policy}: with a maxmemory, crawls would refuse to start"
        return Finding("eviction", "warn", text, "set maxmemory-policy noeviction on the server")
    if limit and used > FULL * limit:
        text = f"noeviction, but {used / limit:.0%} of maxmemory are used: pushes will be refused when it is full"
        return Finding("eviction", "warn", text, "raise maxmemory on the server")
    share = f"{used / limit:.0%} of maxmemory used" if limit else "no maxmemory"
    return Finding("eviction", "ok", f"noeviction, {share}")


async def _host_clock_finding(tools: Tools) -> Finding:
    before = time.time()
    seconds, micros = await tools.command("TIME")
    here = (before + time.time()) / 2
    off = int(seconds) + int(micros) / 1e6 - here
    if abs(off) > CLOCK_TOLERANCE:
        text = f"the server's clock is {off:+.1f} s from this host's; no lease depends on it, times that people see do"
        return Finding("clocks", "warn", text, "run a time service (NTP) on both hosts")
    return Finding("clocks", "ok", f"the server's clock is {off:+.2f} s from this host's")


async def _lease_clock_finding(tools: Tools) -> Finding:
    """Does the clock that leases end by run? It may stand still for an instant, when the server's is stepped back."""
    if not await tools.command("EXISTS", tools.namespace.clock):
        return Finding("lease clock", "ok", f"no crawl has used namespace {tools.namespace.name!r} yet")
    first, _ = await tools.tick()
    await asyncio.sleep(WATCHED)
    second, _ = await tools.tick()
    if second > first:
        return Finding("lease clock", "ok", f"advanced by {second - first} ms in {WATCHED * 1000:.0f} ms")
    text = f"stood still for {WATCHED * 1000:.0f} ms: the server's clock was set back or does not run"
    return Finding("lease clock", "fail", text, "no lease can end until it runs; correct the server's clock")


def _info(reply: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
