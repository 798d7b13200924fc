"""How long the state machines look: ``SCRAPY_LEASE_TEST_LONG=1`` is for a night, or for a change of a script."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

IS_LONG = os.environ.get("SCRAPY_LEASE_TEST_LONG") == "1"
#: Seconds within which a machine must be through.
TIMEOUT = 3600 if IS_LONG else 300

settings.register_profile(
    "ci",
    max_examples=3000 if IS_LONG else 100,
    stateful_step_count=80 if IS_LONG else 50,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PROFILE = settings.get_profile("ci")
