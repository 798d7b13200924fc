"""Troubles of one pool, each kind of which is worth one line of the log, however often it comes."""

from __future__ import annotations

import logging
import sysconfig
from collections.abc import Iterator
from pathlib import Path

#: Folders of code that is not the user's.
_LIBRARIES = (Path(__file__).parents[2], *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")))


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
    """Return the type of *error* and where it was raised. Its own words may hold a password, so they are left out.

    The place is the innermost one in code of the user's; only where there is none, one in a library or in ours.
    """
    places = list(_places(error))
    if not places:
        return type(error).__name__
    file, line = next((place for place in reversed(places) if _is_users(place[0])), places[-1])
    return f"{type(error).__name__} in {file.name}:{line}"


def _places(error: BaseException) -> Iterator[tuple[Path, int]]:
    traceback = error.__traceback__
    while traceback is not None:
        yield Path(traceback.tb_frame.f_code.co_filename), traceback.tb_lineno
        traceback = traceback.tb_next


def _is_users(file: Path) -> bool:
    return file.is_absolute() and not any(file.is_relative_to(folder) for folder in _LIBRARIES)
