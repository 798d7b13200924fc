"""The process that reads pickles: ``python -m scrapy_lease.cli.queue_unpickle``.

What a pickle runs, it runs here, where neither the settings nor a connection to a store is. Answers are payloads, which
run nothing when they are read.
"""

from __future__ import annotations

import os
import pickle
import sys

from scrapy_lease.cli.queue_requests import Answer, payload_of, receive, send
from scrapy_lease.exceptions import LeaseError


def main() -> None:
    """Answer each list of pickles from standard input on what was standard output, until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    # What a pickle prints must not get between the answers.
    os.dup2(2, 1)
    while True:
        try:
            members = receive(sys.stdin.buffer, list[bytes])
        except EOFError:
            return
        send(answers, [_answer(member) for member in members])


def _answer(member: bytes) -> Answer:
    try:
        return Answer(payload=payload_of(pickle.loads(member)))
    except LeaseError as error:
        return Answer(fault=str(error))
    except Exception as error:
        return Answer(fault=f"cannot be unpickled ({type(error).__name__}: {error})")


if __name__ == "__main__":
    main()
