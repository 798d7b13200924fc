"""What a node of the shared backlog may fetch while the store is away, in which order, and what has to wait."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.settings import Settings
from scrapy.statscollectors import StatsCollector
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from scrapy_lease.backlog.lanes import Outgoing
from scrapy_lease.leases.items import Hold, Ledger, Patience
from scrapy_lease.meta import ItemKeys, digest_of
from scrapy_lease.payload import Codec
from scrapy_lease.scheduler.discovered import SPARE, Discovered
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.stats import Stats
from scrapy_lease.store.messages import Answer, Entry, Grant

SITE = "http://site.example/"


def entry_of(path: str, priority: int = 0, slot: str = "site") -> Entry:
    return Entry(digest_of(path), slot, priority, path.encode(), "auto")


class Node:
    """A node whose requests all go to the download slot *site*; each has its path as its item key."""

    def __init__(self) -> None:
        spider = Spider("shop")
        self.ledger = Ledger(Patience(3, (1, 2)))
        self.stats = Stats(StatsCollector(get_crawler(settings_dict=dict(Settings()))))
        keys = ItemKeys(spider, "fingerprint", RequestFingerprinter())
        self.intake = Intake(self, self.ledger, Codec(spider), keys, lambda request: "site", self.stats, 0)
        self.unanswered: list[Outgoing] = []
        self.pending = SPARE
        self.discovered = Discovered(
            self.intake, self.ledger, self.stats, lambda: self.unanswered, lambda: self.pending
        )

    def keep(self, request: Request, parent: Hold | None) -> None:
        raise AssertionError(f"{request} stays with the node")

    def find(self, path: str, parent: Hold | None = None, priority: int = 0) -> None:
        """The engine gives a request."""
        self.intake.add(Request(SITE + path, priority=priority, meta={"lease_item": path}), parent, 0)

    def page(self, path: str) -> Hold:
        """A page that this node has leased, and that was fetched."""
        hold = Hold(digest_of(path), 5, 1, "site", "auto", b"")
        self.ledger.add(hold)
        return hold

    def take(self, free: int = 10, **rooms: int) -> list[bytes]:
        """What is granted, as digests."""
        return [found.entry.digest for found in self.discovered.unleased(free, rooms)]

    def kept(self, everything: bool = False) -> list[bytes]:
        """What is pushed when the store is back."""
        return [outgoing.entry.digest for outgoing in self.discovered.kept(everything)]


@pytest.fixture
def node() -> Node:
    return Node()


def digests(*paths: str) -> list[bytes]:
    return [digest_of(path) for path in paths]


def test_the_best_goes_first(node: Node) -> None:
    """By priority, then as they came; no more than the window has room for, and the rest is pushed afterwards."""
    node.find("1")
    node.find("2")
    node.find("list", priority=1)
    assert node.take(2, site=2) == digests("list", "1")
    assert node.take(0) == []
    assert node.kept() == digests("2")
    assert node.kept() == []


def test_no_slot_gets_more_than_its_room(node: Node) -> None:
    """What a download slot cannot take waits, also where it was pushed before."""
    node.discovered.pushed(entry_of("before"), is_new=True)
    for path in ("1", "2", "3"):
        node.find(path)
    assert node.take(10, site=2) == digests("1", "2")
    assert node.take(10, site=0) == []
    assert node.take(10, site=2) == digests("3", "before")


def test_what_is_in_the_store_waits(node: Node) -> None:
    """An item that this node pushed or leased before is somebody's: it waits, and its page is not done before."""
    node.discovered.pushed(entry_of("pushed"), is_new=False)
    node.discovered.granted([Grant(digest_of("leased"), 7, 0, 0, "site", "auto", b"")])
    page = node.page("page")
    for path in ("pushed", "leased", "new"):
        node.find(path, page)
    assert node.take() == digests("new")
    assert page.unsafe == 3
    assert node.kept() == digests("pushed", "leased")


def test_twice_is_once(node: Node) -> None:
    """A second page that leads to an item waits no longer for it: the first one does."""
    first, second = node.page("first"), node.page("second")
    node.find("1", first)
    node.find("1", second)
    assert node.take() == digests("1")
    assert (first.unsafe, second.unsafe) == (1, 0)
    assert node.stats.get("items/duplicate") == 1


def test_a_push_without_an_answer(node: Node) -> None:
    """It may be in the store: it is granted, and pushed by nobody but its own call, which answers for its page."""
    page = node.page("page")
    node.ledger.child_queued(page)
    node.unanswered = [Outgoing(entry_of("1"), page), Outgoing(entry_of("2"), page)]
    (found,) = node.discovered.unleased(1, {})
    assert (found.entry.digest, found.parent) == (digest_of("1"), None)
    assert node.kept() == []
    assert page.unsafe == 1


def test_the_last_pushed_are_to_spare(node: Node) -> None:
    """With nothing new, a node fetches what it pushed last, as far as that may be pending and was not leased here."""
    for path in ("1", "2", "3", "4"):
        node.discovered.pushed(entry_of(path), is_new=True)
    node.discovered.granted([Grant(digest_of("3"), 7, 0, 0, "site", "auto", b"")])
    node.pending = 2
    node.find("new")
    assert node.take() == digests("new", "4", "2")
    assert node.kept() == []


def test_a_store_that_forgot_gets_all(node: Node) -> None:
    """What was pushed before and is not fetched is pushed again where the store may have lost it."""
    for path in ("1", "2"):
        node.discovered.pushed(entry_of(path), is_new=True)
    assert node.take(1) == digests("2")
    assert node.kept(everything=True) == digests("1")


def test_little_is_kept(node: Node) -> None:
    """Of a long crawl, only the last requests are kept."""
    for number in range(SPARE + 3):
        node.discovered.pushed(entry_of(str(number)), is_new=True)
    assert node.take(SPARE + 3, site=SPARE + 3)[-1] == digest_of("3")


@pytest.mark.parametrize(("answer", "is_pushed"), [(Answer.CONTENDED, True), (Answer.OVER, False)])
def test_what_is_given_up(node: Node, answer: Answer, is_pushed: bool) -> None:
    """An item that another holds may be free again before its push: it is pushed. One that is over is not."""
    page: Any = node.page("page")
    node.find("1", page)
    (found,) = node.discovered.unleased(1, {})
    push = node.discovered.given_up(found, answer)
    assert (push is not None) is is_pushed
    if push is not None:
        assert (push.entry, push.parent) == (found.entry, page)
