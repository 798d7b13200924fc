"""LEASE_ROLLOUT: which item keys are under enforcement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.meta import digest_of, is_enforced
from scrapy_lease.settings import LeaseSettings

SHARES = st.floats(0, 1)


@pytest.mark.parametrize(
    ("key", "least"),
    [("https://shop.example/1", 0.42784), ("https://shop.example/2", 0.2279), ("item", 0.48578)],
)
def test_every_host_says_the_same(key: str, least: float) -> None:
    """The key alone decides, on every host and in every version: here is the share from which on it is enforced."""
    assert is_enforced(digest_of(key), least + 0.0001)
    assert not is_enforced(digest_of(key), least - 0.0001)


@given(st.text(min_size=1), SHARES, SHARES)
def test_a_larger_share_contains_the_smaller(key: str, one: float, other: float) -> None:
    """Whoever raises the share takes no key out of enforcement."""
    smaller, larger = sorted((one, other))
    assert is_enforced(digest_of(key), larger) or not is_enforced(digest_of(key), smaller)


@given(st.binary(min_size=16, max_size=16))
def test_all_and_none(digest: bytes) -> None:
    """1 is every key, 0 is none."""
    assert is_enforced(digest, 1.0)
    assert not is_enforced(digest, 0.0)


def test_the_share_is_the_share() -> None:
    """Of many keys it is that part, within what chance allows."""
    digests = [digest_of(f"https://shop.example/product/{number}") for number in range(10_000)]
    assert 900 < sum(is_enforced(digest, 0.1) for digest in digests) < 1100


@pytest.mark.parametrize("value", [-0.1, 1.1, "10%", True])
def test_what_is_no_share(value: object) -> None:
    """A share is a number from 0 to 1; what else it may have been meant for is refused."""
    with pytest.raises(SettingsError, match=r"LEASE_ROLLOUT = .* a number from 0 to 1"):
        LeaseSettings.from_mapping({"LEASE_REDIS_URL": "redis://localhost", "LEASE_ROLLOUT": value})
