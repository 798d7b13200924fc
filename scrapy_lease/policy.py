"""Verdicts: what an answer, or the want of one, through a leased proxy says, and of whom.

========== ====================================================================================================
verdict    says
========== ====================================================================================================
ok         the page was served
target     a fault of the site: Scrapy retries it
ban        the site refuses this address
limited    the same, for a time that it names (``Retry-After``)
hang       no answer, or half of one: proxy or site, nobody knows
broken     the proxy itself does not work
expired    the proxy's provider has taken it back
logged_out the account is not logged in any more
rejected   the URL is refused, whoever asks
unused     nothing: it was not sent, or what happened has nothing to do with the proxy
========== ====================================================================================================

LEASE_POLICY is asked first, then what the spider wants to see, then LEASE_VERDICTS, then Scrapy's own retry codes.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from OpenSSL.SSL import Error as OpenSSLError
from scrapy import Request
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    NotConfigured,
    ResponseDataLossError,
    UnsupportedURLSchemeError,
)
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost

from scrapy_lease.settings.proxy_values import WORDS

logger = logging.getLogger(__name__)

#: Longest time, in s, for which a ``Retry-After`` counts.
RETRY_AFTER_MAX = 900.0
#: Verdicts after which the answer goes on to Scrapy.
PASSING = frozenset({"ok", "target", "unused"})

_NO_WAY = (DownloadConnectionRefusedError, CannotResolveHostError, UnsupportedURLSchemeError, ConnectError)
_NO_ANSWER = (
    DownloadTimeoutError, DownloadFailedError, ResponseDataLossError, ConnectionDone, ConnectionLost, OSError,
    # Answered CONNECT with nonsense.
    TunnelError,
    # Of the HTTP/1.1 handler, for an https proxy and an https site.
    NotImplementedError,
)  # fmt: skip
#: What people are told of an error, the more special first.
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (CannotResolveHostError, "no such host"),
    (DownloadConnectionRefusedError, "connection refused"),
    (DownloadTimeoutError, "no answer in time"),
    (ResponseDataLossError, "half an answer"),
    (TunnelError, "CONNECT refused"),
    (ConnectError, "no connection"),
    (ConnectionDone, "connection closed"),
    (ConnectionLost, "connection lost"),
    (DownloadFailedError, "connection lost"),
)
#: How the handlers say with which status a proxy refused CONNECT: one in its words, two at the begin of theirs.
_STATUS = re.compile(r"'status': (\d{3})\b|^(\d{3})\b")


class Verdict(NamedTuple):
    """*word*: of the table above; *wait*: for ``limited``, seconds that the site asks for, None where it names none."""

    word: str
    wait: float | None = None


OK, TARGET, HANG, BROKEN, UNUSED = map(Verdict, ("ok", "target", "hang", "broken", "unused"))


class Judge:
    """Says what came of a request that a leased proxy carried.

    :param verdicts: status -> verdict, as LEASE_VERDICTS and its defaults say.
    :param retry_codes: statuses that Scrapy retries.
    :param policy: of LEASE_POLICY, or None.
    :param wanted: statuses that the spider asks for.
    :param decompression: what makes the body that the policy sees, None: it sees it as it came.
    """

    def __init__(
        self,
        verdicts: Mapping[int, str],
        retry_codes: frozenset[int],
        *,
        policy: Any = None,
        wanted: frozenset[int] = frozenset(),
        decompression: HttpCompressionMiddleware | None = None,
    ) -> None:
        self._words = {**dict.fromkeys(retry_codes, "target"), **verdicts}
        self._policy = policy
        self._wanted = wanted
        self._decompression = decompression
        self._complained: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler, verdicts: Mapping[int, str], policy: type | None) -> Judge:
        settings, decompression = crawler.settings, None
        if policy is not None:
            try:
                decompression = HttpCompressionMiddleware.from_crawler(crawler)
                # It only helps to judge: Scrapy's own counts the page.
                decompression.stats = None
            except NotConfigured:
                pass
        return cls(
            verdicts,
            frozenset(int(code) for code in settings.getlist("RETRY_HTTP_CODES")),
            policy=build_from_crawler(policy, crawler) if policy is not None else None,
            wanted=frozenset(getattr(crawler.spider, "handle_httpstatus_list", ())),
            decompression=decompression,
        )

    def __repr__(self) -> str:
        return f"<Judge of {len(self._words)} statuses{' and a policy' if self._policy else ''}>"

    def response(self, request: Request, response: Response, *, is_scheduled: bool) -> Verdict:
        """Judge an answer.

        :param is_scheduled: the spider asked for the page: only then what it wants to see counts.
        """
        status = response.status
        if self._policy is not None and (said := self._opinion(request, response, None)) is not None:
            return _limited(response) if said == "limited" else Verdict(said)
        word = self._words.get(status)
        if word is None:
            return TARGET if status >= 500 else OK
        if is_scheduled and self._is_wanted(request, status):
            return OK
        return _limited(response) if word == "limited" else Verdict(word)

    def exception(self, request: Request, error: Exception, *, is_scheduled: bool) -> Verdict:
        """Judge the want of an answer; the request may have been sent."""
        if self._policy is not None and (said := self._opinion(request, None, error)) is not None:
            return Verdict(said)
        if (status := _refusal(error)) is not None:
            word = self._words.get(status)
            return Verdict(word) if word in ("broken", "expired", "limited") else HANG
        if isinstance(error, _NO_WAY):
            # The handlers say so of a tunnel's other end, too.
            return HANG if any(isinstance(cause, ssl.SSLError | OpenSSLError) for cause in causes(error)) else BROKEN
        return HANG if isinstance(error, _NO_ANSWER) else UNUSED

    def _is_wanted(self, request: Request, status: int) -> bool:
        meta = request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        return status in meta.get("handle_httpstatus_list", self._wanted)

    def _opinion(self, request: Request, response: Response | None, error: Exception | None) -> str | None:
        try:
            if response is not None:
                response = self._readable(request, response)
            said: str | None = self._policy.judge(request, response, error)
        except Exception as failure:
            self._complain(f"raised {type(failure).__name__}", exc_info=True)
            return None
        if said is None or said in WORDS:
            return said
        self._complain(f"said {said!r}, which is no verdict; verdicts are {', '.join(WORDS)} and None")
        return None

    def _readable(self, request: Request, response: Response) -> Response:
        if self._decompression is None or b"Content-Encoding" not in response.headers:
            return response
        decoded = self._decompression.process_response(request, response.copy())
        assert isinstance(decoded, Response)
        return decoded

    def _complain(self, fault: str, *, exc_info: bool = False) -> None:
        """Say once of each kind that the policy is at fault; the statuses decide in its place."""
        if fault not in self._complained:
            self._complained.add(fault)
            logger.error(
                "LEASE_POLICY: %s %s; LEASE_VERDICTS decides", type(self._policy).__qualname__, fault, exc_info=exc_info
            )


def words_of(error: Exception) -> str:
    """Return in a few words what *error*, the want of an answer, was; its own may hold secrets."""
    if (status := _refusal(error)) is not None:
        return f"status {status} for CONNECT"
    return next((words for kind, words in _WORDS if isinstance(error, kind)), type(error).__name__)


def retry_after(response: Response, longest: float = RETRY_AFTER_MAX) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for, at most *longest*; None for none or nonsense.

    A date is held against the site's own clock where the site shows it.
    """
    value = response.headers.get(b"Retry-After")
    text = (value or b"").decode("latin-1").strip()
    try:
        wait = float(text) if text.isdigit() else _moment(text) - _clock_of(response)
    except (ValueError, OverflowError):
        return None
    return min(wait, longest) if wait > 0 else None


def _moment(text: str) -> float:
    return parsedate_to_datetime(text).timestamp()


def _clock_of(response: Response) -> float:
    try:
        return _moment((response.headers.get(b"Date") or b"").decode("latin-1"))
    except (ValueError, OverflowError):
        return time.time()


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and what led to it."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _limited(response: Response) -> Verdict:
    return Verdict("limited", retry_after(response))


def _refusal(error: Exception) -> int | None:
    """Return the status with which a proxy refused to open a tunnel, None where it did not."""
    if not isinstance(error, TunnelError | DownloadFailedError | DownloadConnectionRefusedError):
        return None
    found = _STATUS.search(str(error))
    return int(found[1] or found[2]) if found else None
