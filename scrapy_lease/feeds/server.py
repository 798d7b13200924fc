"""Which server has the feeds: the one that the settings of scrapy-redis name, else the lease store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from scrapy.settings import BaseSettings

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.settings import redacted_url
from scrapy_lease.settings.values import checked_url

#: What names a server in REDIS_PARAMS; the rest (timeouts, retries, encodings) is about a client of another kind.
_NAMES = ("host", "port", "db", "username", "password", "unix_socket_path", "ssl")


def feed_url(settings: BaseSettings) -> str | None:
    """Return the URL of the server that REDIS_URL, REDIS_HOST, REDIS_PORT, REDIS_DB and REDIS_PARAMS name.

    None: they name none. As with scrapy-redis, REDIS_URL wins over the others, which fill in what it leaves out.

    :raises SettingsError: they make no URL of a server.
    """
    params: dict[str, Any] = dict(settings.getdict("REDIS_PARAMS"))
    for name in ("host", "port", "db"):
        if settings.get(f"REDIS_{name.upper()}"):
            params[name] = settings[f"REDIS_{name.upper()}"]
    url = settings.get("REDIS_URL") or params.get("url")
    if not url and all(params.get(name) is None for name in _NAMES):
        return None
    made = _with_user(str(url), params) if url else _made_of(params)
    try:
        checked = checked_url(made)
        if checked.startswith("embedded:"):
            raise ValueError("names no server")
    except ValueError as error:
        name = "REDIS_URL" if url else "REDIS_HOST, REDIS_PORT, REDIS_DB, REDIS_PARAMS"
        raise SettingsError(f"{name} = {redacted_url(made)!r} is no URL of a server with feeds: {error}") from None
    return checked


def _made_of(params: Mapping[str, Any]) -> str:
    user = _user(params)
    database = params.get("db") or 0
    if params.get("unix_socket_path"):
        return f"unix://{user}{params['unix_socket_path']}?{urlencode({'db': database})}"
    scheme = "rediss" if params.get("ssl") else "redis"
    secured = {name: value for name, value in params.items() if name.startswith("ssl_") and value is not None}
    query = f"?{urlencode(secured)}" if secured and params.get("ssl") else ""
    return f"{scheme}://{user}{params.get('host') or 'localhost'}:{params.get('port') or 6379}/{database}{query}"


def _with_user(url: str, params: Mapping[str, Any]) -> str:
    user, parts = _user(params), urlsplit(url)
    return url if not user or "@" in parts.netloc else urlunsplit(parts._replace(netloc=user + parts.netloc))


def _user(params: Mapping[str, Any]) -> str:
    name, password = (params.get(part) for part in ("username", "password"))
    if not name and not password:
        return ""
    return f"{quote(str(name or ''), safe='')}:{quote(str(password or ''), safe='')}@"
