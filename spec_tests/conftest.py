"""Shared by all tests: properties are checked on the same examples in every run, however slow the machine is.

HYPOTHESIS_PROFILE=explore looks for new examples instead.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repository", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("explore", settings.get_profile("repository"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repository"))
