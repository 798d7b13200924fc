"""A local shop to crawl: ``python -m example.shop --port 8000 --products 400 --log hits.jsonl``.

The first line on stdout is its address (a JSON object with ``--json``); SIGTERM or Ctrl-C ends it.

| path | page |
|---|---|
| /lists?page=N&per_page=M | links to M products, and to the next list |
| /product/N | a product, as HTML |
| /api/products?page=N&per_page=M | the same lists as JSON |
| /slow/N?s=SECONDS | a product, later |
| /flaky/N | a product; the first request for it fails with 500 |
| /go/N | redirects to /product/N |
| /links/N | links to N products on one page |
| /login | a form: any user, password "secret" |
| /account | a page for those who logged in; others are sent to /login |
| /members/N | a product at the price of members; others are sent to /login. "mallory" gets three such pages, then 403 |
| /status | counts, as JSON; neither delayed nor logged |

Anything else is a 404. A request is logged with the node named in its header ``X-Node``, else its user agent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from example import pages
from example.hits import ABORTED, HitLog

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

COOKIE = "shop_session"
PASSWORD = "secret"
#: Whom the shop bans, after how many pages.
BANNED, BEFORE_THE_BAN = "mallory", 3


def html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html")


class Shop:
    """The pages; ``latency`` is the number of seconds before every answer."""

    def __init__(self, products: int, log: HitLog, latency: float = 0.0) -> None:
        self.products = products
        self.latency = latency
        self._log = log
        self._failed_once: set[int] = set()
        self._users: dict[str, str] = {}
        self._pages_of: Counter[str] = Counter()
        self._open = 0
        self._statuses: Counter[int] = Counter()
        self._nodes: Counter[str] = Counter()

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._logged])
        app.add_routes(
            [
                web.get("/", self.home),
                web.get("/lists", self.lists),
                web.get(r"/product/{number:\d+}", self.product),
                web.get("/api/products", self.api),
                web.get(r"/slow/{number:\d+}", self.slow),
                web.get(r"/flaky/{number:\d+}", self.flaky),
                web.get(r"/go/{number:\d+}", self.go),
                web.get(r"/links/{number:\d+}", self.links),
                web.get("/login", self.login_form),
                web.post("/login", self.login),
                web.get("/account", self.account),
                web.get(r"/members/{number:\d+}", self.members),
                web.get("/status", self.status),
            ]
        )
        return app

    @web.middleware
    async def _logged(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/status":
            return await handler(request)
        node = request.headers.get("X-Node") or request.headers.get("User-Agent", "")
        hit = self._log.start(
            method=request.method,
            path=request.path_qs,
            client=request.remote or "",
            host=request.host,
            node=node,
        )
        self._open += 1
        self._nodes[node] += 1
        # What no handler reports otherwise: the client went away and its handler was cancelled.
        status = ABORTED
        try:
            await asyncio.sleep(self.latency)
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as answer:
            status = answer.status
            raise
        finally:
            self._open -= 1
            self._statuses[status] += 1
            self._log.end(hit, status)

    async def home(self, request: web.Request) -> web.Response:
        return html(pages.home())

    async def lists(self, request: web.Request) -> web.Response:
        page, per_page, numbers = self._page_of(request)
        has_more = page * per_page < self.products
        following = f"/lists?page={page + 1}&per_page={per_page}" if has_more else None
        return html(pages.links_page(f"Products, page {page}", numbers, following))

    async def api(self, request: web.Request) -> web.Response:
        page, per_page, numbers = self._page_of(request)
        following = page + 1 if page * per_page < self.products else None
        return web.json_response(
            {"page": page, "next": following, "products": [pages.product(number) for number in numbers]}
        )

    async def product(self, request: web.Request) -> web.Response:
        return html(pages.product_page(self._number(request)))

    async def slow(self, request: web.Request) -> web.Response:
        await asyncio.sleep(_number_from(request, "s", 1.0))
        return await self.product(request)

    async def flaky(self, request: web.Request) -> web.Response:
        number = self._number(request)
        if number not in self._failed_once:
            self._failed_once.add(number)
            return html(pages.page("Sorry", "Try again."), 500)
        return await self.product(request)

    async def go(self, request: web.Request) -> web.Response:
        raise web.HTTPFound(f"/product/{self._number(request)}")

    async def links(self, request: web.Request) -> web.Response:
        return html(pages.links_page("Links", range(1, int(request.match_info["number"]) + 1)))

    async def login_form(self, request: web.Request) -> web.Response:
        return html(pages.login_page())

    async def login(self, request: web.Request) -> web.Response:
        form = await request.post()
        user = str(form.get("user", ""))
        if not user or form.get("password") != PASSWORD:
            return html(pages.login_page("Wrong user name or password."), 403)
        session = secrets.token_urlsafe(16)
        self._users[session] = user
        answer = web.HTTPFound("/account")
        answer.set_cookie(COOKIE, session, httponly=True)
        raise answer

    async def account(self, request: web.Request) -> web.Response:
        return html(pages.account_page(self._user(request)))

    async def members(self, request: web.Request) -> web.Response:
        user = self._user(request)
        self._pages_of[user] += 1
        if user == BANNED and self._pages_of[user] > BEFORE_THE_BAN:
            raise web.HTTPForbidden
        return html(pages.members_page(self._number(request), user))

    async def status(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "products": self.products,
                "open": self._open,
                "hits": self._nodes.total(),
                "nodes": self._nodes,
                "statuses": {str(status): number for status, number in self._statuses.items()},
            }
        )

    def _user(self, request: web.Request) -> str:
        user = self._users.get(request.cookies.get(COOKIE, ""))
        if user is None:
            raise web.HTTPFound("/login")
        return user

    def _number(self, request: web.Request) -> int:
        number = int(request.match_info["number"])
        if not 1 <= number <= self.products:
            raise web.HTTPNotFound
        return number

    def _page_of(self, request: web.Request) -> tuple[int, int, range]:
        page = int(_number_from(request, "page", 1))
        per_page = int(_number_from(request, "per_page", 20))
        first = (page - 1) * per_page + 1
        if page < 1 or per_page < 1 or first > max(self.products, 1):
            raise web.HTTPNotFound
        return page, per_page, range(first, min(first + per_page, self.products + 1))


def _number_from(request: web.Request, name: str, default: float) -> float:
    try:
        return float(request.query.get(name, default))
    except ValueError:
        raise web.HTTPBadRequest(text=f"{name} must be a number") from None


async def serve(shop: Shop, host: str, port: int, as_json: bool) -> None:
    """Serves the shop until SIGTERM or SIGINT; ``port`` 0 takes a free one."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    # A handler is cancelled when its client goes away: a page that was not delivered is not logged as sent.
    runner = web.AppRunner(shop.app(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0][1]
        url = f"http://{host}:{bound}"
        print(json.dumps({"url": url, "port": bound}) if as_json else url, flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m example.shop", description="A local shop to crawl.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--products", type=int, default=400)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--log", default="hits.jsonl", help="file that every hit is appended to")
    parser.add_argument("--json", action="store_true", help="print the address as JSON")
    options = parser.parse_args()
    log = HitLog(options.log)
    with contextlib.closing(log):
        shop = Shop(options.products, log, options.latency)
        asyncio.run(serve(shop, options.host, options.port, options.json))


if __name__ == "__main__":
    main()
