"""What the log says of an error whose own words may hold a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from scrapy_lease.leases.pool.complaints import name_of
from scrapy_lease.providers.address import parse_address

HERE = "test_complaints.py"


@pytest.mark.parametrize(("call", "value", "name"), [(unquote, None, "TypeError"), (parse_address, "", "ValueError")])
def test_the_line_of_the_user_is_named(call: Callable[[Any], Any], value: Any, name: str) -> None:
    """Not that of the library, or of ours, in which the call failed: nobody would find the cause there."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    assert name_of(caught.value).startswith(f"{name} in {HERE}:")


def test_an_error_of_a_library_alone() -> None:
    """Where no code of the user's is on the way, the innermost place is told; without a traceback the type alone."""
    with pytest.raises(TypeError) as caught:
        unquote(None)  # type: ignore[call-overload]
    error = caught.value
    assert error.__traceback__ is not None
    assert name_of(error.with_traceback(error.__traceback__.tb_next)).startswith("TypeError in parse.py:")
    assert name_of(KeyError("hunter2")) == "KeyError"
