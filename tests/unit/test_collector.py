"""What the crawl asks of Python's garbage collector."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc
from scrapy_lease.runtime import _spare_the_collector
{before}
_spare_the_collector()
print(gc.get_threshold(), gc.isenabled(), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("gc.set_threshold(700, 10, 10)", "(10000, 10, 10) True True"),
        ("gc.set_threshold(3000, 20, 20)", "(3000, 20, 20) True True"),
        ("gc.disable()", "False True"),
    ],
)
def test_thresholds_that_somebody_chose_stay(before: str, after: str) -> None:
    """Only the default threshold is raised; what lives as long as the crawl is not walked any more."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith(after)
