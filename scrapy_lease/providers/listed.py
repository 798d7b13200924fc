"""LEASE_PROXIES: a list of proxy URLs, or a file that has one on each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.entries import in_file, in_json, numbered, refuse
from scrapy_lease.providers.minted import Gateway, is_gateway, parse_gateway

_BETWEEN_URLS = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list names: addresses of proxies, or gateways; never both."""

    proxies: tuple[Address, ...] = ()
    gateways: tuple[Gateway, ...] = ()

    @property
    def is_owned(self) -> bool:
        """Are they gateways that give each account an identity of its own?"""
        return any(gateway.needs_account for gateway in self.gateways)


def checked_proxies(value: str | Sequence[str]) -> Listed:
    """Read LEASE_PROXIES: a list of URLs, as such or as a string, or the path of a file with one URL a line.

    In a file, what follows ``#`` at the begin of a line or after a space is a comment.

    :raises ValueError: some cannot be used; the text says which and why, without user names and passwords.
    """
    if isinstance(value, str):
        return _listed(_from_string(value.strip()))
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"is a {type(value).__name__}: give a list of proxy URLs, or the path of a file with one a line"
        )
    return _listed(numbered(value))


def _from_string(text: str) -> Iterator[tuple[str, object]]:
    if text.startswith("["):
        return in_json(text)
    if "://" in text:
        return numbered(_BETWEEN_URLS.split(text))
    lines = ((place, _COMMENT.sub("", line).strip()) for place, line in in_file(text, "a proxy URL (with ://)"))
    return ((place, entry) for place, entry in lines if entry)


def _listed(entries: Iterable[tuple[str, object]]) -> Listed:
    proxies: dict[Address, None] = {}
    gateways: dict[str, Gateway] = {}
    wrong: list[str] = []
    for place, entry in entries:
        try:
            if not isinstance(entry, str):
                raise ValueError(f"is a {type(entry).__name__}, not a string")
            if is_gateway(entry):
                gateways[entry] = parse_gateway(entry)
            else:
                proxies[parse_address(entry)] = None
        except ValueError as error:
            wrong.append(f"{place} {error}")
    refuse(wrong)
    if proxies and gateways:
        raise ValueError(
            "has gateways ({session}) beside proxies: give each kind a pool of its own in LEASE_PROXY_POOLS"
        )
    if len({gateway.needs_account for gateway in gateways.values()}) > 1:
        raise ValueError("has gateways with {account} beside others: give each kind a pool in LEASE_PROXY_POOLS")
    if not proxies and not gateways:
        raise ValueError("names no proxy")
    return Listed(tuple(proxies), tuple(gateways.values()))
