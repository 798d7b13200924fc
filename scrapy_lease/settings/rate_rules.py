"""LEASE_RATE_LIMITS: which limits hold for which keys of which dimension.

A dimension gives a request a key: its exit address (``ip``), its user agent (``ua``), its site (``api``, ``domain``),
or what a function of the user's returns. A limit holds for each key by itself. ``api`` and ``domain`` may have rules
instead: a URL prefix, ``re:`` and a regular expression, or a host with its subdomains, each with limits of its own; the
first that takes a request counts, and ``*`` gives a limit to each site that no other takes. A rule that can take
nothing is refused: who wrote it meant some requests, and those would go unlimited.

User and password of a URL are no part of a rule, nor of what a rule looks at: rules are told to other hosts, kept in
the store, and shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from w3lib.url import safe_url_string

from scrapy_lease.leases.rates.words import DAY, Limit
from scrapy_lease.settings.routes import EXPRESSION, REST, hiding, is_prefix, takes
from scrapy_lease.settings.sources import did_you_mean
from scrapy_lease.settings.values import function_at, redacted_url

#: Dimensions that need no function; those whose limits may be a mapping of rules.
PLAIN, RULED = ("ip", "ua", "api", "domain", "account"), ("api", "domain")
_UNITS = {
    "ms": 1, "s": 1000, "sec": 1000, "second": 1000, "min": 60_000, "minute": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "d": DAY, "day": DAY,
}  # fmt: skip
_LIMIT = re.compile(r"([0-9]+)\s*(?:/|\bper\b)\s*(?:([0-9]+)\s*)?([a-z]+)")
_SHORTEST, _MOST = 100, 10_000
_USER = re.compile(r"(?<=://)[^/?#]*@")
_USER_IN_EXPRESSION = re.compile(r"://[\w.%~+-]*:[^/?#@()\[\]]*@")
_HOST = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*(:(?P<port>[0-9]{1,5}))?")

#: What a rule holds against a URL: how it begins, an expression found in it, or a host.
Pattern = str | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits for what *pattern* takes, all of it together; *text*: as people wrote it, without a user."""

    text: str
    pattern: Pattern
    limits: tuple[Limit, ...]

    def takes(self, url: str, host: str) -> bool:
        """Does it take a request of *url* (:func:`without_user`), whose host, with any port it has, is *host*?"""
        if isinstance(self.pattern, str) and "/" not in self.pattern:
            return _is_of(host, self.pattern)
        return takes(self.pattern, url)


@dataclass(frozen=True, slots=True)
class Dimension:
    """How requests are told apart in one respect.

    :param each: limits of each key that no rule takes.
    :param function: gives a request its key, None: the dimension is one of :data:`PLAIN`.
    """

    name: str
    each: tuple[Limit, ...]
    rules: tuple[Rule, ...] = ()
    function: Callable[[Any], Any] | None = None

    @property
    def limits(self) -> Iterator[tuple[str, Limit]]:
        """Each limit, with what an operator calls its rule."""
        yield from ((self.name, limit) for limit in self.each)
        yield from ((f"{self.name} {rule.text}", limit) for rule in self.rules for limit in rule.limits)


def checked_limits(value: Any) -> tuple[Dimension, ...]:
    """Return LEASE_RATE_LIMITS read; raise ValueError saying what is wrong with it."""
    if isinstance(value, tuple) and all(isinstance(part, Dimension) for part in value):
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("is no mapping of dimensions to limits")
    return tuple(_dimension(name, given) for name, given in value.items())


def spec_of(dimensions: Iterable[Dimension]) -> str:
    """Return dimensions as JSON that :func:`checked_limits` reads; those that limit the same are the same text."""
    return json.dumps({each.name: _spec(each) for each in sorted(dimensions, key=lambda each: each.name)})


def limits_of(spec: str) -> Iterator[tuple[str, Limit]]:
    """Yield each limit of what :func:`spec_of` made, with what an operator calls its rule; functions may be missing."""
    for name, given in json.loads(spec).items():
        rules = given if isinstance(given, Mapping) else {REST: given}
        for text, limits in rules.items():
            rule = name if text == REST else f"{name} {text}"
            yield from ((rule, parse_limit(limit)) for limit in limits)


def parse_limit(text: str) -> Limit:
    """Read ``"50/second"``, ``"50 per second"`` or ``"100/5 minutes"``; raise ValueError if it is no limit."""
    found = _LIMIT.fullmatch(text.strip().lower())
    unit = 0 if found is None else _UNITS.get(found[3]) or _UNITS.get(found[3].removesuffix("s"), 0)
    if found is None or not unit:
        raise ValueError(
            f"{text[:40]!r} is no limit: write '50/second' or '100/5 minutes'; units are ms, second, minute, hour, day"
        )
    permits, window = int(found[1]), int(found[2] or 1) * unit
    if not _SHORTEST <= window <= DAY:
        raise ValueError(f"{text[:40]!r}: a window is between 100 ms and a day long")
    if not permits or permits * 1000 > _MOST * max(window, 1000):
        raise ValueError(f"{text[:40]!r}: a limit is between one in a window and {_MOST} in a second")
    return Limit(permits, window)


def without_user(url: str) -> str:
    """Return *url*, or a rule with one in it, without the user and the password that it may hold."""
    return _USER.sub("", url) if "@" in url else url


def check_rule(rule: str) -> None:
    """Raise ValueError unless *rule* names limits: a dimension, or ``api`` or ``domain`` and one of their rules."""
    name, _, text = rule.partition(" ")
    if name not in PLAIN and ("." not in name or "/" in name):
        near = did_you_mean(name, PLAIN)
        raise ValueError(f"{name!r} is no dimension: there is {', '.join(PLAIN)}, or a path to a function{near}")
    if text and name not in RULED:
        raise ValueError(f"{name!r} has no rules: its limits hold for each key; write {name!r} alone")
    if text == REST:
        raise ValueError(f"the limits of {REST!r} are those of {name!r} alone")
    if text:
        _pattern(text)


def _spec(dimension: Dimension) -> Any:
    each = _texts(dimension.each)
    if not dimension.rules:
        return each
    rules = {rule.text: _texts(rule.limits) for rule in dimension.rules}
    return {**rules, REST: each} if each else rules


def _texts(limits: Iterable[Limit]) -> list[str]:
    return [f"{permits}/{window} ms" for permits, window in sorted(limits)]


def _dimension(name: Any, given: Any) -> Dimension:
    function = None
    if name not in PLAIN:
        function = _function(name)
    try:
        if isinstance(given, Mapping):
            return _ruled(name, given)
        return Dimension(name, _limits(given), function=function)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None


def _ruled(name: str, given: Mapping[Any, Any]) -> Dimension:
    if name not in RULED:
        raise ValueError(f"has one limit for each of its keys, or a list of them; rules are for {' and '.join(RULED)}")
    rules: list[Rule] = []
    for text, limits in given.items():
        if text != REST:
            rules.append(_rule(text, limits, rules))
    if not given:
        raise ValueError("is an empty mapping: it can match nothing")
    return Dimension(name, _limits(given[REST]) if REST in given else (), tuple(rules))


def _rule(text: Any, limits: Any, before: list[Rule]) -> Rule:
    pattern = _pattern(text)
    for other in before:
        if isinstance(pattern, str) and _hides(other.pattern, pattern):
            raise ValueError(
                f"{_named(text)} can match nothing: {_named(other.text)} before it takes all of it; put it first"
            )
        if pattern == other.pattern:
            raise ValueError(f"{_named(text)} stands there twice")
    try:
        return Rule(text if text.startswith(EXPRESSION) else without_user(text), pattern, _limits(limits))
    except ValueError as error:
        raise ValueError(f"{_named(text)}: {error}") from None


def _named(text: Any) -> str:
    """Return a rule as it may stand in an error: a URL may hold a password."""
    return repr(redacted_url(text) if isinstance(text, str) else text)


def _pattern(text: Any) -> Pattern:
    if isinstance(text, str) and text.startswith(EXPRESSION):
        if _USER_IN_EXPRESSION.search(text):
            raise ValueError(f"{_named(text)} can match nothing: rules see URLs without user and password")
        try:
            return re.compile(text.removeprefix(EXPRESSION))
        except re.error as error:
            raise ValueError(f"{_named(text)} is no regular expression ({error})") from None
    if isinstance(text, str) and is_prefix(without_user(text)):
        # As Scrapy writes the URL of a request.
        return safe_url_string(without_user(text))
    host = _HOST.fullmatch(text.lower()) if isinstance(text, str) else None
    if host is not None and 0 < int(host["port"] or 80) < 65536:
        return host[0]
    raise ValueError(
        f"{_named(text)} can match nothing: a rule is the begin of a URL (https://host/…), re: and a regular "
        f'expression, a host, or "{REST}"; a port is a number from 1 to 65535'
    )


def _hides(other: Pattern, pattern: str) -> bool:
    """Does *other*, which is asked before, take all that *pattern* takes?"""
    if not isinstance(other, str):
        return False
    if "/" in other:
        return next(hiding(pattern, [(other, None)]), None) is not None
    return _is_of(urlsplit(pattern).netloc if "/" in pattern else pattern, other)


def _is_of(host: str, rule: str) -> bool:
    """Is *host* the one that a rule names, or below it? One without a port takes every port."""
    if ":" not in rule:
        host = host.partition(":")[0]
    return host == rule or host.endswith(f".{rule}")


def _limits(value: Any) -> tuple[Limit, ...]:
    """Return one limit or several; of two for one window the lower."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{str(value)[:40]!r} is no limit: write '50/second', or a list of such")
    strictest: dict[int, Limit] = {}
    for limit in map(parse_limit, value):
        strictest[limit.window] = min(limit, strictest.get(limit.window, limit))
    return tuple(strictest.values())


def _function(name: Any) -> Callable[[Any], Any]:
    if not isinstance(name, str) or "." not in name or "/" in name:
        near = did_you_mean(str(name), PLAIN)
        raise ValueError(f"{_named(name)} is no dimension: there is {', '.join(PLAIN)}, or a path to a function{near}")
    try:
        return function_at(name)
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None
