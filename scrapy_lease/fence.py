"""LEASE_FENCE_FIELD: an item field that receives the fence of the lease under which its page was fetched."""

from __future__ import annotations

import logging
from typing import Any

from itemadapter import ItemAdapter
from scrapy import Request

from scrapy_lease.meta import read_record

logger = logging.getLogger(__name__)


class FenceField:
    """Writes the fence into the field *name*; an item class without such a field is warned of once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._without: set[type] = set()

    def __call__(self, request: Request, item: Any) -> None:
        """Write the fence of the lease of *request* into *item*, which came from its page."""
        record = read_record(request.meta)
        if record is None:
            return
        try:
            ItemAdapter(item)[self._name] = record["fence"]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if type(item) not in self._without:
                self._without.add(type(item))
                logger.warning(
                    "LEASE_FENCE_FIELD=%r: items of %s cannot receive the fence (%s: %s); give them this field",
                    self._name, type(item).__qualname__, type(error).__name__, error,
                )  # fmt: skip
