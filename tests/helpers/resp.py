"""The frames of the Redis protocol, RESP2 and RESP3."""

from __future__ import annotations

BULK_KINDS = frozenset(b"$=!")
# Kind of an aggregate -> elements per unit of its length, and besides (an attribute precedes its reply).
AGGREGATES = {ord("*"): (1, 0), ord("~"): (1, 0), ord(">"): (1, 0), ord("%"): (2, 0), ord("|"): (2, 1)}


class Frames:
    """Cuts a stream of RESP into whole frames, in time linear in the bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._missing = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the frames that are complete now."""
        self._buffer += data
        frames = []
        while self._scan_element():
            if not self._missing:
                frames.append(bytes(self._buffer[: self._scanned]))
                del self._buffer[: self._scanned]
                self._scanned, self._missing = 0, 1
        return frames

    def _scan_element(self) -> bool:
        line_end = self._buffer.find(b"\r\n", self._scanned)
        if line_end < 0:
            return False
        kind, end, children = self._buffer[self._scanned], line_end + 2, 0
        if kind in BULK_KINDS and self._length(line_end) >= 0:
            end += self._length(line_end) + 2
        elif kind in AGGREGATES:
            each, more = AGGREGATES[kind]
            children = max(self._length(line_end), 0) * each + more
        if end > len(self._buffer):
            return False
        self._scanned = end
        self._missing += children - 1
        return True

    def _length(self, line_end: int) -> int:
        return int(self._buffer[self._scanned + 1 : line_end])
