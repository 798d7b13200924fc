"""How the values of the settings for proxies and verdicts are read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from scrapy.utils.misc import load_object

from scrapy_lease.providers.api import checked_api
from scrapy_lease.providers.limits import checked_buy_limit
from scrapy_lease.providers.listed import checked_proxies
from scrapy_lease.providers.supplies import checked_provider
from scrapy_lease.settings.routes import checked_routes
from scrapy_lease.settings.values import number_only

Word = Literal["ok", "target", "limited", "ban", "broken", "expired", "logged_out", "rejected"]
"""What a verdict says."""
WORDS: tuple[str, ...] = get_args(Word)
VERDICTS: Mapping[int, Word] = {403: "ban", 407: "broken", 429: "limited", 454: "expired"}
"""What a status of an answer through a leased proxy means where nobody says otherwise."""


def from_json(value: Any) -> Any:
    """Return what *value*, text of a JSON object or list, holds; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is no JSON ({error})") from None


def checked_verdicts(value: Any) -> dict[int, Word]:
    """Return the defaults with *value* (status -> verdict; None takes one out) laid over them."""
    if not isinstance(value, Mapping):
        raise ValueError("is no mapping of a status to a verdict")
    verdicts = dict(VERDICTS)
    for key, word in value.items():
        status = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key
        if type(status) is not int or not 100 <= status <= 999:
            raise ValueError(f"{key!r} is no status")
        if word is None:
            verdicts.pop(status, None)
        elif word not in WORDS:
            raise ValueError(f"{status}: {word!r} is no verdict")
        else:
            verdicts[status] = cast(Word, word)
    return verdicts


def checked_policy(value: Any) -> Any:
    """Return the class that *value* is or names; raise ValueError unless it can judge."""
    try:
        found = load_object(value) if isinstance(value, str) else value
    except Exception as error:
        raise ValueError(f"cannot be imported ({type(error).__name__}: {error})") from None
    if not isinstance(found, type):
        raise ValueError("is no class")
    if not callable(getattr(found, "judge", None)):
        raise ValueError(f"leads to {found.__qualname__}, which has no method judge(request, response, exception)")
    return found


def checked_check(url: str) -> str:
    """Return the *url* through which new proxies are tried."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no http:// or https:// URL")
    return url


def _or_none(check: Any) -> Any:
    """Return a validator that leaves None, which is not given, alone."""
    return AfterValidator(lambda value: None if value is None else check(value))


Amount = Annotated[int, BeforeValidator(number_only), Field(ge=0)]
"""A whole number, 0 too."""
Routing = Annotated[Any, AfterValidator(checked_routes)]
"""LEASE_PROXY_POOL; read, it is `scrapy_lease.settings.routes.Routes`."""
ProviderClass = Annotated[Any, _or_none(checked_provider)]
PolicyClass = Annotated[Any, _or_none(checked_policy)]
CheckUrl = Annotated[str | None, _or_none(checked_check)]
Sticky = Literal["domain", "account"] | None
VerdictTable = Annotated[Any, BeforeValidator(from_json), AfterValidator(checked_verdicts)]
PoolTable = Annotated[Any, BeforeValidator(from_json)]
ProxyList = Annotated[Any, _or_none(checked_proxies)]
"""LEASE_PROXIES; read, it is `scrapy_lease.providers.listed.Listed`."""
ApiOptions = Annotated[Any, _or_none(checked_api)]
BuyLimit = Annotated[Any, _or_none(checked_buy_limit)]
"""Read, it is a tuple of `scrapy_lease.leases.pool.supply.Limit`."""
