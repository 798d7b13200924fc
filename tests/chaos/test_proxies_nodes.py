"""Nodes with leased proxies that are killed, frozen, told to leave, or cut off from the store; and how they share."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.lending import Lending, expires, lendings, shared, unlent
from tests.helpers.proxied import Bed
from tests.helpers.proxies import DIRECT, Web
from tests.helpers.relay import Relay
from tests.helpers.servers import Server
from tests.helpers.spiders import is_long, items_of, paths_of, records_of, seeds

pytestmark = pytest.mark.one_server

LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"
#: Of a node that freezes, in s.
TTL = 2.0

#: Asks for *pages* pages as soon as the file *begins* is there.
BUSY = """
class Busy(ShopSpider):
    pages = "20"
    begins = "begin"

    async def start(self):
        while not Path(self.begins).exists():
            await asyncio.sleep(0.02)
        for number in range(int(self.pages)):
            yield self.page(f"/page/{number}")
"""


def paths(number: int, chance: random.Random, latency: tuple[float, float] = (0.05, 0.2)) -> list[str]:
    """The paths of so many pages that take the site a random time."""
    return [f"/slow/{chance.uniform(*latency):.3f}/{page}" for page in range(number)]


def judge(b: Bed) -> None:
    """By the site's log no address was shared and nothing came directly; by the pool's events nobody lacked a lease."""
    assert not shared(b.site.hits)
    assert not unlent(b)
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert b.site.peers <= b.exits()
    assert DIRECT not in b.site.peers


def held_at(b: Bed, node: Node, moment: float) -> list[Lending]:
    """What a node had leased at a moment."""
    return [one for one in lendings(b) if one.node == node.name and one.began < moment < one.ended]


@pytest.mark.each_server
@pytest.mark.parametrize("seed", seeds(1))
def test_a_node_is_killed(bed: Callable[..., Bed], seed: int) -> None:
    """Three nodes, one SIGKILLed at a random moment: its proxies serve others once it has expired, and not before."""
    chance = random.Random(seed)
    number, pages = (12, 600) if is_long() else (6, 320)
    b = bed(number)
    asked = paths(pages, chance)
    nodes = [b.crawl(name=f"n{node}", paths=" ".join(asked)) for node in range(3)]
    # Early enough that something is left to be fetched when its proxies are free again.
    moment, victim = chance.randrange(5, pages // (2 if is_long() else 4)), chance.choice(nodes)
    until(lambda: len(b.site.hits) >= moment and "Spider opened" in victim.log, 30, f"{moment} hits, and {victim}")
    kill = victim.kill()
    over = expires(b, victim.name)
    b.shop.wait([node for node in nodes if node is not victim])
    judge(b)
    assert set(paths_of(items_of(b.shop))) == set(asked)
    exits = {proxy.endpoint: proxy.exit for proxy in b.web.proxies}
    for held in held_at(b, victim, kill.at):
        others = [hit.started for hit in b.site.hits if hit.peer == exits[held.id] and hit.started > held.ended]
        assert over - 0.05 <= held.ended <= over + 2.5, f"{held} of a session that was over at {over}"
        assert others, f"{held} serves nobody any more"
    assert b.left() == {"leased": 0, "free": number, "resting": 0, "known": number}


@pytest.mark.timeout(300)
def test_two_proxies_and_three_busy_nodes(bed: Callable[..., Bed]) -> None:
    """With fewer proxies than nodes each gets between 20 and 50 % of the pages, and the proxies do not lie idle.

    Leases go round once a second: a few seconds only show that nobody is left out.
    """
    seconds, least, most, use = (180, 0.2, 0.5, 0.6) if is_long() else (10, 0.08, 0.65, 0.4)
    b = bed(2, latency=0.1)
    nodes = [b.crawl(BUSY, f"n{node}", pages=25 * seconds) for node in range(3)]
    for node in nodes:
        node.wait_for("Spider opened")
    (b.shop.folder / "begin").touch()
    until(lambda: b.site.hits)
    began = b.site.hits[0].started + 2
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    counted = Counter(hit.agent for hit in list(b.site.hits) if began <= hit.started < began + seconds)
    leave(b, nodes)
    shares = {node.name: round(counted[node.name] / counted.total(), 3) for node in nodes}
    assert all(least <= share <= most for share in shares.values()), shares
    assert counted.total() > use * 2 * seconds / 0.1
    judge(b)


@pytest.mark.timeout(300)
def test_nodes_that_starve_at_first(bed: Callable[..., Bed]) -> None:
    """Nodes that come when others have leased every proxy and are busy: all are served within seconds."""
    rich, poor = (4, 8) if is_long() else (2, 3)
    b = bed(rich, latency=0.1)
    begins = ["rich"] * rich + ["poor"] * poor
    nodes = [
        b.crawl(BUSY, f"{kind}{n}", settings={"LEASE_JOB": f"{kind}{n}"}, pages=400, begins=kind)
        for n, kind in enumerate(begins)
    ]
    for node in nodes:
        node.wait_for("Spider opened", 60)
    (b.shop.folder / "rich").touch()
    until(lambda: b.left()["leased"] == rich and len(b.site.peers) == rich, 20, "all proxies to be leased")
    (b.shop.folder / "poor").touch()
    names = {node.name for node in nodes}
    until(lambda: {hit.agent for hit in list(b.site.hits)} == names, 30, "all to be served")
    leave(b, nodes)
    judge(b)


def leave(b: Bed, nodes: list[Node]) -> float:
    """Tell all *nodes* to leave; return the seconds after which all have."""
    for node in nodes:
        node.terminate()
    told = time.monotonic()
    b.shop.wait(nodes)
    return time.monotonic() - told


@pytest.mark.parametrize("seed", seeds(1))
def test_nodes_that_wait_are_told_to_leave(bed: Callable[..., Bed], server: Server, seed: int) -> None:
    """SIGTERM with requests that wait for proxies: all nodes are gone within 3 s, and what is not done is pending."""
    chance = random.Random(seed)
    b = bed(2)
    asked = paths(60, chance, (0.3, 0.8))
    nodes = [b.crawl(name=f"n{node}", paths=" ".join(asked)) for node in range(3)]
    moment = chance.randrange(4, 12)
    until(lambda: len(b.site.hits) >= moment and all("Spider opened" in node.log for node in nodes))
    # Who reads start() has told of all of them.
    until(lambda: len(records_of(server.client())) + len(items_of(b.shop)) >= len(asked))
    time.sleep(chance.uniform(0, 1))
    assert leave(b, nodes) < 3
    judge(b)
    done = paths_of(items_of(b.shop))
    pending = [record for record in records_of(server.client()) if record.state in ("pending", "delayed")]
    assert len(pending) == len(asked) - len(done)
    assert {(record.attempts, record.deaths) for record in pending} == {(0, 0)}
    assert b.left() == {"leased": 0, "free": 2, "resting": 0, "known": 2}


def pause(b: Bed, node: Node) -> float:
    """Freeze a node if the site has all that it sends; return when, 0 if it goes on.

    What has passed the gate and is not on the socket yet would be sent when it wakes: no process can prevent that.
    """
    asked = [hit for hit in list(b.site.hits) if hit.agent == node.name and not hit.ended]
    now = time.monotonic()
    if not asked or len(asked) < len(held_at(b, node, now)) or any(hit.started > now - 0.02 for hit in asked):
        return 0.0
    node.pause()
    if any(hit.ended for hit in asked):
        node.resume()
        return 0.0
    return time.monotonic()


@pytest.mark.parametrize("seed", seeds(1))
def test_a_node_freezes(bed: Callable[..., Bed], seed: int) -> None:
    """SIGSTOP for 3 x TTL, then SIGCONT: it sends nothing through proxies that it has lost meanwhile."""
    chance = random.Random(seed)
    b = bed(4)
    asked = paths(280, chance)
    settings = {"LEASE_TTL": TTL}
    nodes = [b.crawl(name=f"n{node}", paths=" ".join(asked), settings=settings) for node in range(2)]
    for node in nodes:
        node.wait_for("Spider opened")
    sleeper = nodes[0]
    # Early enough that the other has not done all when it wakes up.
    moment = chance.randrange(10, 40)
    until(lambda: sum(hit.agent == sleeper.name for hit in list(b.site.hits)) >= moment, 30)
    paused_at = until(lambda: pause(b, sleeper))
    time.sleep(3 * TTL)
    sleeper.resume()
    b.shop.wait(nodes)
    judge(b)
    assert set(paths_of(items_of(b.shop))) == set(asked)
    lost = held_at(b, sleeper, paused_at)
    assert all(one.ended < paused_at + 2 * TTL + 1 for one in lost)
    assert {hit.agent for hit in b.site.hits if hit.started > paused_at + 3 * TTL} == {"n0", "n1"}
    assert sleeper.stats["lease/session/lost"] == 1


def test_what_was_cut_off_may_still_be_answered(fleet: Callable[..., Fleet], own_server: Server) -> None:
    """The store is away until downloads are cut off, and back at once: no proxy carries two requests to the site."""
    with Web() as web, Relay(own_server.url) as relay:
        web.add_many(4)
        b = Bed(web, fleet(url=relay.url, products=1), own_server.client())
        asked = [f"/slow/0.8/{page}" for page in range(24)]
        node = b.crawl(paths=" ".join(asked), settings={"LEASE_TTL": TTL})
        until(lambda: len(b.site.hits) >= 6)
        relay.cut()
        until(lambda: "Cutting off" in node.log)
        relay.restore()
        b.shop.wait([node])
        judge(b)
        assert set(paths_of(items_of(b.shop))) == set(asked)
        assert len(b.site.hits) > len(asked)
        assert node.stats["lease/session/lost"] == 0


@pytest.fixture
def own_bed(fleet: Callable[..., Fleet], own_server: Server) -> Iterator[Bed]:
    """Six proxies, and a store that a test may kill."""
    with Web() as web:
        web.add_many(6)
        yield Bed(web, fleet(url=own_server.url, products=1), own_server.client())


AWAY = [("forgets", 0.0), *([("returns", 0.3), ("returns", 1.0), ("returns", 4.0), ("returns", 10.0)] if LONG else [])]


@pytest.mark.each_server
@pytest.mark.parametrize(("how", "seconds"), AWAY)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_server_is_killed(own_bed: Bed, own_server: Server, how: str, seconds: float, seed: int) -> None:
    """SIGKILL of the store in mid-crawl and back: no address is shared, nothing comes directly, all pages are done.

    The same for one that comes back without its last writes, which learns who has what before it lends anything. It has
    no event of what was leased then, so only the site's log tells.
    """
    b, chance = own_bed, random.Random(seed)
    asked = paths(200, chance)
    settings = {"LEASE_PROXY_REUSE": 4 if how == "forgets" else 0}
    nodes = [b.crawl(name=f"n{node}", paths=" ".join(asked), settings=settings) for node in range(3)]
    moment = chance.randrange(20, 100)
    until(lambda: len(b.site.hits) >= moment and all("Spider opened" in node.log for node in nodes), 30)
    if how == "forgets":
        journal = next(own_server.directory.glob("appendonlydir/*.incr.aof"))
        size = journal.stat().st_size
        time.sleep(0.9)
        own_server.kill()
        os.truncate(journal, size)
    else:
        own_server.kill()
        time.sleep(seconds)
    own_server.start()
    b.shop.wait(nodes)
    if how == "forgets":
        assert not shared(b.site.hits)
        assert b.site.peers <= b.exits()
    else:
        judge(b)
    assert set(paths_of(items_of(b.shop))) == set(asked)
    assert b.left() == {"leased": 0, "free": 6, "resting": 0, "known": 6}
