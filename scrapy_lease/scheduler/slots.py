"""How many requests each download slot can send now.

Scrapy queues what a slot cannot send yet behind it, where a request would grow old with its lease. So the scheduler
hands out no more than a slot can send: its own count goes up when it hands a request out and down when the
downloader-middleware chain of the request has ended, because Scrapy's count lags behind by a turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from scrapy import Request
from scrapy.core.downloader import Downloader
from scrapy.crawler import Crawler

#: Origins whose slot is remembered.
ORIGINS = 10_000


class _Count:
    """The requests of one slot."""

    __slots__ = ("key", "sending", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        #: Handed out, not with the download handler yet.
        self.waiting = 0
        #: With the download handler, or on the way back.
        self.sending = 0


class Slots:
    """Counts of one crawl. The engine need not exist yet; it must when the first request is asked for."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        settings = crawler.settings
        self._special = settings.getdict("DOWNLOAD_SLOTS")
        self._concurrency = settings.getint("CONCURRENT_REQUESTS_PER_IP") or settings.getint(
            "CONCURRENT_REQUESTS_PER_DOMAIN"
        )
        throttled = settings.getbool("AUTOTHROTTLE_ENABLED")
        first = settings.getfloat("AUTOTHROTTLE_START_DELAY") if throttled else 0.0
        self._delay = max(settings.getfloat("DOWNLOAD_DELAY"), first)
        self._counts: dict[str, _Count] = {}
        self._waiting: dict[Request, _Count] = {}
        self._sending: dict[Request, _Count] = {}
        self._slot_of_origin: dict[str, str] = {}
        #: Called when a slot may have become able to send.
        self.on_room: Callable[[], None] = lambda: None

    def key_of(self, request: Request) -> str:
        """Return the name of the download slot that Scrapy will use for *request*."""
        # Without a slot of its own it hangs on the host alone, and to parse the URL takes longer than all the rest.
        url = request.url
        end = url.find("/", 8) if url.startswith("http") and Downloader.DOWNLOAD_SLOT not in request.meta else 0
        origin = url[: max(0, end)]
        key = self._slot_of_origin.get(origin)
        return self._asked(request, origin) if key is None else key

    def can_send(self, key: str) -> bool:
        """Can this slot send one more request at once? With a delay, one may wait for its time."""
        count = self._counts.get(key)
        if count is None:
            return True
        concurrency, delay = self._limits(key)
        if delay:
            return count.waiting < 1 and count.waiting + count.sending <= concurrency
        return count.waiting + count.sending < concurrency

    def room(self, key: str) -> int:
        """Return how many more requests this slot can send at once."""
        count = self._counts.get(key)
        concurrency, delay = self._limits(key)
        if delay:
            return int(self.can_send(key))
        return concurrency - (count.waiting + count.sending if count is not None else 0)

    def handed_out(self, request: Request) -> None:
        """*request* goes to the engine now."""
        key = self.key_of(request)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(key)
        count.waiting += 1
        self._waiting[request] = count

    def sent(self, request: Request) -> None:
        """*request* is with its download handler."""
        count = self._waiting.pop(request, None)
        if count is not None:
            count.waiting -= 1
            count.sending += 1
            self._sending[request] = count
            self.on_room()

    def ended(self, request: Request) -> None:
        """The downloader is done with *request*."""
        count = self._sending.pop(request, None)
        if count is not None:
            count.sending -= 1
        elif (count := self._waiting.pop(request, None)) is not None:
            count.waiting -= 1
        else:
            return
        if not count.waiting and not count.sending:
            del self._counts[count.key]
        self.on_room()

    def _asked(self, request: Request, origin: str) -> str:
        downloader = self._crawler.engine.downloader
        key: str = downloader.get_slot_key(request).replace("\0", "").replace("\1", "")
        is_plain = getattr(downloader.get_slot_key, "__func__", None) is Downloader.get_slot_key
        if origin and is_plain and not downloader.ip_concurrency:
            if len(self._slot_of_origin) >= ORIGINS:
                self._slot_of_origin.clear()
            self._slot_of_origin[origin] = key
        return key

    def _limits(self, key: str) -> tuple[int, float]:
        slot = self._crawler.engine.downloader.slots.get(key)
        if slot is not None:
            return slot.concurrency, slot.delay
        special = self._special.get(key, {})
        return special.get("concurrency", self._concurrency), special.get("delay", self._delay)
