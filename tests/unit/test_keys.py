"""Key names: all in one hash slot, and no two names ever share a key."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from scrapy_lease.store.keys import Namespace, Scope

PARTS = ("meta", "members", "producing", "start", "ready", "slots", "delayed", "state", "payload", "dead")
SID = "0123456789abcdef0123"

#: Names as people and settings make them, with what structures a key in abundance.
characters = st.one_of(st.sampled_from("{}:@%/ab0*"), st.characters(exclude_categories=["Cs"]))
names = st.text(characters, min_size=1, max_size=8)
maybe = st.one_of(st.just(""), names)


def keys_of(space: Namespace, scope: Scope) -> Iterator[str]:
    """Every kind of key that a scope of a namespace has."""
    yield from (space.clock, space.sessions, space.control, space.jobs, space.session(SID), space.runs(scope.job))
    yield from (space.rate_limits, *space.rate_blocks, space.rate_specs, space.rate_witnesses(space.name))
    yield from (space.rate(space.name), space.rate(space.name, 3))
    yield from map(scope.key, PARTS)
    yield from (scope.held(SID), scope.held(""), scope.bucket(0), scope.mark(b"d" * 16)[0])


@given(names, names, maybe)
@example("{", "}", "")
@example("a}b", "{c}", "{}")
def test_all_keys_of_a_namespace_are_in_one_slot(name: str, job: str, run: str) -> None:
    """Each key begins with the hash tag {namespace:0}, whatever the names hold, so a cluster keeps them together."""
    space = Namespace(name)
    keys = list(keys_of(space, space.scope(job, run)))
    assert all(key.startswith(f"{space.prefix}:") for key in keys)
    assert space.prefix.count("{") == space.prefix.count("}") == 1
    assert len({key_slot(key.encode()) for key in keys}) == 1


@given(st.tuples(names, names, maybe), st.tuples(names, names, maybe))
@example(("n", "a@b", ""), ("n", "a", "b"))
@example(("n", "a:ready", ""), ("n", "a", ""))
@example(("n", "a", ""), ("n", "a%40b", ""))
@example(("n:0}", "a", ""), ("n", "a", ""))
def test_other_names_never_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Scopes of another namespace, job or run have other keys, braces, colons, at signs and escapes notwithstanding."""
    if one == other:
        return
    scopes = [Namespace(name).scope(job, run) for name, job, run in (one, other)]
    first, second = ({*map(scope.key, PARTS), scope.held(SID), scope.bucket(3)} for scope in scopes)
    assert not first & second


@given(names, names)
def test_other_namespaces_share_nothing(one: str, other: str) -> None:
    """Two names that differ are two namespaces: no key is in both."""
    if one != other:
        first, second = (set(keys_of(space, space.scope("job"))) for space in (Namespace(one), Namespace(other)))
        assert not first & second


@given(names, maybe)
def test_the_kinds_of_a_scope_differ(job: str, run: str) -> None:
    """No part of a scope, nor a job's list of runs, has the key of another part."""
    space = Namespace("n")
    keys = list(keys_of(space, space.scope(job, run, expected_items=10)))
    # With a single bucket the mark's bucket is bucket 0.
    assert len(set(keys)) == len(keys) - 1


@given(st.binary(min_size=16, max_size=16), st.integers(1, 10**10))
def test_a_mark_is_found_by_both_halves_of_its_digest(digest: bytes, expected: int) -> None:
    """The field is the second half of the digest, the bucket a number below their count from the first half."""
    scope = Namespace("n").scope("job", expected_items=expected)
    key, field = scope.mark(digest)
    assert field == digest[8:]
    assert scope.buckets == max(1, expected // 100)
    number = int(key.rpartition(":")[2])
    assert 0 <= number < scope.buckets
    assert number == int.from_bytes(digest[:8], "big") % scope.buckets


def test_names_without_structure_stay_readable() -> None:
    """What people name plainly is in the key as it is."""
    scope = Namespace("shop").scope("books-de", "2026-12-01")
    assert scope.key("ready") == "{shop:0}:job:books-de@2026-12-01:ready"
    assert Namespace("shop", 3).clock == "{shop:3}:clock"
