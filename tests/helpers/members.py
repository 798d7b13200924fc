"""A site that has members, the accounts of some, and crawls that go there as them."""

from __future__ import annotations

import itertools
import json
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs

import redis
from scrapy import FormRequest, Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_lease import Account, LoginFailed
from scrapy_lease.store.keys import Namespace, PoolKeys
from tests.helpers.fleet import Fleet, Node
from tests.helpers.proxied import urls
from tests.helpers.proxies import Hit, Message, Site, Web, answer
from tests.helpers.spiders import ShopSpider, crawl

PASSWORD = "hunter2-of-all"
#: Asks for the pages of the paths in *paths*, or for *pages* pages of members; an item tells who got it.
MEMBERS = """
from tests.helpers.members import MemberSpider

class Members(MemberSpider):
    pass
"""


class Club(Site):
    """Pages below ``/members/`` are for those who logged in at ``/login``; all others are for everybody.

    A cookie of the site is ``sid=USER-NUMBER``, and is good until the member is logged out. ``/members/to/PATH``
    redirects there.

    :ivar visits: of pages of members, by those who were let in.
    :ivar logins: user names, one for each login that succeeded.
    :ivar bans: says of a user and a path whether that page is refused.
    """

    def __init__(self, latency: float, context: ssl.SSLContext | None) -> None:
        super().__init__(latency, context)
        self.visits: list[Visit] = []
        self.logins: list[str] = []
        self.refused: set[str] = set()
        self.bans_of: Callable[[str, str], bool] = lambda user, path: False
        self.status = 403
        self._sessions: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def log_out(self, user: str = "") -> None:
        """Let no cookie of *user*, or of anybody, be good any more."""
        self._sessions = {sid: each for sid, each in self._sessions.items() if user and each != user}

    def admit(self, user: str) -> str:
        """Return a cookie that is good without a login."""
        sid = f"{user}-{next(self._numbers)}"
        self._sessions[sid] = user
        return sid

    def user_of(self, hit: Hit) -> str:
        """Return who made a request, "" for nobody."""
        cookies = dict(part.strip().partition("=")[::2] for part in hit.headers.get("cookie", "").split(";"))
        return self._sessions.get(cookies.get("sid", ""), hit.headers.get("x-key", ""))

    def reply(self, hit: Hit, message: Message) -> bytes:
        if hit.path == "/login":
            return self._login(message) if message.method == "POST" else answer(200, b"<form></form>")
        if not hit.path.startswith("/members/"):
            return super().reply(hit, message)
        user = self.user_of(hit)
        if not user:
            return answer(302, Location="/login")
        self.visits.append(Visit(user, hit))
        if self.bans_of(user, hit.path):
            return answer(self.status)
        if hit.path.startswith("/members/to/"):
            return answer(302, Location=hit.path.removeprefix("/members/to"))
        # Each page changes a cookie, as many sites do.
        return answer(200, f"<h1>{user}</h1>".encode(), Set_Cookie=f"page={hit.path.rpartition('/')[2]}; Path=/")

    def _login(self, message: Message) -> bytes:
        form = {name: values[0] for name, values in parse_qs(message.body.decode()).items()}
        user = form.get("user", "")
        if form.get("password") != PASSWORD or user in self.refused:
            return answer(200, b"<form>wrong</form>")
        self.logins.append(user)
        return answer(302, Location="/home", Set_Cookie=f"sid={self.admit(user)}; Path=/")


@dataclass(frozen=True, slots=True)
class Visit:
    """A page of members that *user* got."""

    user: str
    hit: Hit

    @property
    def node(self) -> str:
        return self.hit.headers.get("x-node", "")


class NodeHeader:
    """A downloader middleware that tells the site which node asks: the User-Agent is the account's."""

    def __init__(self, node: str) -> None:
        self.node = node

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings["LEASE_NODE"])

    def process_request(self, request: Request) -> None:
        request.headers["X-Node"] = self.node


class MemberSpider(ShopSpider):
    """Asks for *pages* pages of members, or for *paths*."""

    paths = ""
    pages = "20"
    custom_settings: ClassVar = {
        **ShopSpider.custom_settings,
        "DOWNLOADER_MIDDLEWARES": {NodeHeader: 1},
    }

    async def start(self) -> Any:
        for path in self.paths.split() or [f"/members/{number}" for number in range(int(self.pages))]:
            yield self.page(path)

    def parse(self, response: Response) -> Any:
        lease = response.meta.get("lease") or {}
        yield {
            "path": response.url.removeprefix(self.base), "status": response.status, "account": lease.get("account"),
            "user": response.css("h1::text").get(), "proxy": lease.get("proxy"),
            "carried": sorted(response.request.headers.to_unicode_dict() if response.request else ()),
            "jar": response.meta.get("cookiejar"),
        }  # fmt: skip


class FormLogin:
    """LEASE_ACCOUNT_HANDLER: fills in the form."""

    def __init__(self, base: str) -> None:
        self.base = base

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(getattr(crawler.spider, "base", ""))

    async def login(self, account: Account, fetch: Any) -> None:
        await fetch(f"{self.base}/login")
        form = {"user": account.username, "password": account.password}
        response = await fetch(FormRequest(f"{self.base}/login", formdata=form, dont_filter=True))
        if "wrong" in response.text:
            raise LoginFailed(f"{account.password} is wrong")


class Wall:
    """LEASE_POLICY: a page of members that leads to the form says that nobody is logged in."""

    def judge(self, request: Request, response: Response | None, exception: Exception | None) -> str | None:
        if response is None or "/members/" not in request.url:
            return None
        is_wall = response.status == 302 and (response.headers.get("Location") or b"").endswith(b"/login")
        return "logged_out" if is_wall else None


#: Settings with which accounts log in.
FORM = {"LEASE_ACCOUNT_HANDLER": "tests.helpers.members.FormLogin", "LEASE_POLICY": "tests.helpers.members.Wall"}


class MemberBed:
    """A club, perhaps behind proxies, and nodes that crawl it with *number* accounts, ``m0`` and so on."""

    def __init__(self, web: Web, shop: Fleet, client: redis.Redis, number: int) -> None:
        self.web = web
        self.shop = shop
        self.client = client
        self.users = [f"m{each}" for each in range(number)]
        assert isinstance(web.site, Club)
        self.site: Club = web.site

    @property
    def accounts(self) -> list[dict[str, Any]]:
        """LEASE_ACCOUNTS, of those who log in."""
        return [{"id": user, "username": user, "password": PASSWORD} for user in self.users]

    def with_cookies(self) -> list[dict[str, Any]]:
        """LEASE_ACCOUNTS, of those who are logged in already."""
        return [{"id": user, "cookies": {"sid": self.site.admit(user)}} for user in self.users]

    def crawl(
        self, name: str = "n0", *, accounts: list[dict[str, Any]] | None = None, source: str = MEMBERS,
        settings: Mapping[str, Any] = {}, **arguments: Any,
    ) -> Node:  # fmt: skip
        """Start a node; *accounts* instead of those that log in, where there are none no list is set."""
        listed = self.accounts if accounts is None else accounts
        chosen = {"LOG_LEVEL": "DEBUG", **(FORM if accounts is None else {})}
        if listed:
            chosen["LEASE_ACCOUNTS"] = json.dumps(listed)
        if self.web.proxies:
            chosen["LEASE_PROXIES"] = urls(self.web.proxies)
        return crawl(self.shop, name, source, base=self.site.base, settings={**chosen, **settings}, **arguments)

    def run(self, name: str = "n0", **options: Any) -> Node:
        """The same, until the node has ended by itself."""
        node = self.crawl(name, **options)
        self.shop.wait([node])
        return node

    def uses(self) -> Counter[str]:
        """How many pages each member got."""
        return Counter(visit.user for visit in self.site.visits)

    def told(self) -> str:
        """All that the store knows, and the items: where no secret may be."""
        texts = []
        for key in self.client.scan_iter("*"):
            kind = self.client.type(key)
            read: Any = {b"stream": lambda k: self.client.xrange(k), b"hash": lambda k: self.client.hgetall(k)}.get(
                kind
            )
            texts.append(repr(read(key)) if read else repr(key))
        items = self.shop.folder / "items.jsonl"
        return "".join([*texts, items.read_text() if items.exists() else ""])


def account_keys(pool: str = "default") -> PoolKeys:
    """The keys of a pool of accounts."""
    return Namespace("scrapybot").pool("account", pool)
