"""feed_take, feed_settle: an entry is in exactly one place, and no reply that is lost changes that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.keys import FeedKeys
from tests.helpers.fleet import ROOT
from tests.helpers.servers import Server
from tests.lua.feed_bed import KINDS, FeedBed

#: Entries with bytes that no text has, spaces and line breaks.
ENTRIES = (b"http://a.test/1", b' {"url": "x y"} ', b"\x00\xff\n", b"4")


@pytest.fixture(params=KINDS)
def bed(server: Server, request: pytest.FixtureRequest) -> Iterator[FeedBed]:
    with FeedBed(server, request.param) as bed:
        yield bed


@pytest.fixture
def queue(server: Server) -> Iterator[FeedBed]:
    with FeedBed(server, "list") as bed:
        yield bed


def test_an_entry_moves_from_the_feed_to_who_takes_it(bed: FeedBed) -> None:
    """What is taken is no longer in the feed but on the account of the session, byte for byte."""
    bed.feed(*ENTRIES)
    taken = bed.take(want=3)
    assert (taken.held, taken.readers, len(taken.entries)) == (3, ("a",), 3)
    assert sorted([*taken.entries.values(), *bed.left()]) == sorted(ENTRIES)
    assert bed.taken_by() == taken.entries


def test_nothing_is_taken_twice(bed: FeedBed) -> None:
    """Two sessions get different entries under different ids, and no more than there are."""
    bed.feed(*ENTRIES)
    first, second = bed.take("a", 3), bed.take("b", 3)
    assert sorted([*first.entries.values(), *second.entries.values()]) == sorted(ENTRIES)
    assert not first.entries.keys() & second.entries.keys()
    assert (second.held, second.readers) == (1, ("a", "b"))
    assert bed.take("c").readers == ("a", "b")


def test_the_same_entry_fed_again_is_another(bed: FeedBed) -> None:
    """An id is never given twice: what is fed anew is not mistaken for what was taken before."""
    ids = set()
    for _ in range(20):
        bed.feed(b"http://a.test/")
        (entry,) = bed.take().entries
        bed.settle("a", (entry, "done"))
        ids.add(entry)
    assert len(ids) == 20


def test_a_look_takes_nothing(bed: FeedBed) -> None:
    """With nothing wanted the feed stays as it is, and the account shows what an earlier call took."""
    bed.feed(*ENTRIES)
    bed.take(want=1)
    look = bed.take(want=0)
    assert (look.held, look.readers, dict(look.entries), len(bed.left())) == (1, ("a",), {}, 3)


def test_an_empty_feed_leaves_no_trace(bed: FeedBed) -> None:
    """Who finds nothing has no account, so that others need not wait for it."""
    taken = bed.take()
    assert (taken.held, taken.readers, dict(taken.entries)) == (0, (), {})
    assert bed.client.keys() == []


def test_done_entries_are_gone(bed: FeedBed) -> None:
    """Settled as done an entry is nowhere; the account goes with its last one, and so does the reader."""
    bed.feed(*ENTRIES)
    first, *others = bed.take().entries
    assert bed.settle("a", (first, "done")) == 1
    assert bed.take("b").readers == ("a",)
    assert bed.settle("a", *((entry, "done") for entry in others)) == 3
    assert bed.client.keys() == []


def test_settling_twice_changes_nothing(bed: FeedBed) -> None:
    """The first says what becomes of an entry; a repeated call, or another's, finds it gone."""
    bed.feed(b"x", b"y")
    first, second = bed.take().entries
    assert bed.settle("a", (first, "done"), (second, "failed")) == 2
    assert bed.settle("a", (first, "failed"), (second, "back"), (first, "back")) == 0
    assert (len(bed.failed()), bed.left(), bed.take().held) == (1, [], 0)


def test_failed_entries_are_kept_in_order(bed: FeedBed) -> None:
    """What cannot be requested goes to the end of a list beside the feed, as it was fed."""
    bed.feed(*ENTRIES)
    bed.client.rpush(bed.keys.failed, b"earlier")
    taken = bed.take().entries
    bed.settle("a", *((entry, "failed") for entry in taken))
    assert sorted(bed.failed()[1:]) == sorted(ENTRIES)
    assert bed.failed()[0] == b"earlier"


def test_what_is_given_back_stands_where_it_was(bed: FeedBed) -> None:
    """Entries go back first and in their order; those of a sorted set have their scores."""
    for score, entry in enumerate(ENTRIES):
        bed.feed(entry, score=score / 3)
    before = bed.left()
    scores = bed.client.zrange(bed.keys.name, 0, -1, withscores=True) if bed.kind == "zset" else None
    bed.settle("a", *((entry, "back") for entry in bed.take(want=3).entries))
    assert bed.left() == before
    if scores is not None:
        assert bed.client.zrange(bed.keys.name, 0, -1, withscores=True) == scores
    assert bed.take(want=0).readers == ()


def test_a_list_is_read_from_its_head(queue: FeedBed) -> None:
    """As lpop does: what was pushed last comes first."""
    queue.feed(b"1", b"2", b"3")
    assert list(queue.take(want=2).entries.values()) == [b"3", b"2"]


def test_a_sorted_set_is_read_from_its_highest_score(server: Server) -> None:
    """The entry with the highest score first."""
    with FeedBed(server, "zset") as bed:
        for score, entry in ((1.5, b"low"), (float("inf"), b"first"), (-2, b"last"), (7, b"high")):
            bed.feed(entry, score=score)
        assert list(bed.take().entries.values()) == [b"first", b"high", b"low", b"last"]


def test_large_batches(queue: FeedBed) -> None:
    """More entries than one call of a command takes as arguments come out, in order."""
    entries = [b"%d" % number for number in range(9000)]
    queue.client.rpush(queue.keys.name, *entries)
    assert list(queue.take(want=8500).entries.values()) == entries[:8500]
    assert len(queue.left()) == 500


@pytest.mark.parametrize(
    ("kind", "made", "cure"),
    [
        ("list", "set", "REDIS_START_URLS_AS_SET = True"),
        ("set", "list", "take both out"),
        ("set", "zset", "REDIS_START_URLS_AS_ZSET = True"),
        ("list", "string", "another redis_key"),
    ],
)
def test_a_feed_of_another_type_is_refused(server: Server, kind: str, made: str, cure: str) -> None:
    """The message names feed, type and what to do; nothing is touched."""
    with FeedBed(server, kind) as bed:
        if made == "string":
            bed.client.set(bed.keys.name, "x")
        else:
            with FeedBed(server, made) as other:
                other.feed(b"x")
        with pytest.raises(StoreRefused, match=rf"feed 'shop:start_urls' is a {made}.*{cure}"):
            bed.take()
        assert bed.client.keys() == [b"shop:start_urls"]


@pytest.mark.parametrize(("name", "tag"), [("a:b", "a:b"), ("{a}:b", "a"), ("x{a}b{c}", "a"), ("a{b", "a{b")])
def test_all_keys_of_a_feed_share_its_slot(name: str, tag: str) -> None:
    """The hash tag of the keys beside a feed is what a cluster hashes of the feed's own name."""
    keys = FeedKeys(name, "n {s}", "id")
    for key in (keys.readers, keys.failed, keys.taken("sid")):
        first = key.index("{")
        assert key[first + 1 : key.index("}", first)] == tag


@pytest.mark.parametrize("kind", KINDS)
def test_the_documented_rights_are_enough(make_server: Callable[..., Server], tmp_path: Path, kind: str) -> None:
    """A user with the rights that docs/operations.md lists for a feed takes, looks, gives back and puts aside."""
    text = " ".join((ROOT / "docs" / "operations.md").read_text("utf-8").split())
    rules = text.partition("the key `shop:start_urls`, `")[2].partition("`")[0]
    users = tmp_path / "users.acl"
    users.write_text(f"user default on nopass ~* &* +@all\nuser reader on >hush {rules}\n")
    server = make_server(config={"aclfile": str(users)})
    url = server.url.replace("://", "://reader:hush@")
    with FeedBed(server, kind, url=url) as bed:
        bed.feed(b"1", b"2", b"3")
        first, second, third = bed.take().entries
        assert len(bed.taken_by()) == 3
        assert bed.settle("a", (first, "done"), (second, "failed"), (third, "back")) == 3
    assert server.client().acl_log() == []
