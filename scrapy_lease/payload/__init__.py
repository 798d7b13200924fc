"""Requests as bytes for the backlog, and back: nothing that is read is imported or run."""

from scrapy_lease.payload.codec import Codec, describe, from_spec, request_from_spec

__all__ = ["Codec", "describe", "from_spec", "request_from_spec"]
