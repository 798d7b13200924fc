"""Troubles of one pool, each kind of which is worth one line of the log, however often it comes."""

from __future__ import annotations

import logging
from pathlib import Path


class Complaints:
    """Logs the first of each kind as a warning, the others for who looks at details.

    :param who: begins each line: the pool, or what else is in trouble.
    """

    def __init__(self, logger: logging.Logger, who: str) -> None:
        self._logger = logger
        self._who = who
        self._told: set[str] = set()

    def tell(self, kind: str, text: str) -> None:
        """Say *text*, which holds no secrets; what comes of the same *kind* later is no news."""
        level = logging.DEBUG if kind in self._told else logging.WARNING
        self._told.add(kind)
        self._logger.log(level, "%s: %s", self._who, text)


def name_of(error: BaseException) -> str:
    """Return the type of *error* and where it was raised. Its own words may hold a password, so they are left out."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return type(error).__name__
    code = traceback.tb_frame.f_code
    return f"{type(error).__name__} in {Path(code.co_filename).name}:{traceback.tb_lineno}"
