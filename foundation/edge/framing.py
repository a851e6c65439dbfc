"""Finds the end of a request: its head with gunicorn's strict parser, its body by length or chunks. Reads no socket."""

import re
from typing import Any

from gunicorn.http import errors
from gunicorn.http.body import CHUNK_EXT_RE
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader

from foundation.problems import (
    BadRequest,
    ExpectationNotMet,
    HeadersTooLarge,
    PayloadTooLarge,
    UnsupportedCoding,
    UriTooLong,
)

LONGEST_REQUEST_LINE = 8190
LONGEST_SIZE_LINE = 256
LONGEST_TRAILERS = 8190
SMALL_CHUNKS = 1000
LEAST_MEAN_CHUNK = 64
END = b"\r\n\r\n"
BARE_LF = re.compile(rb"(?:^|[^\r])\n")
SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})([ \t]*;.*)?", re.DOTALL)


def take_head(inbox: bytearray, seen: int, most: int) -> bytes | None:
    """Cuts the head off the inbox; None while its end has not arrived. The first `seen` bytes were searched before."""
    end = inbox.find(END, max(0, seen - 3))
    if end >= 0 and end + 4 <= most:
        head = bytes(inbox[: end + 4])
        del inbox[: end + 4]
        return head
    if inbox.find(b"\r\n", 2 if inbox.startswith(b"\r\n") else 0, LONGEST_REQUEST_LINE + 4) < 0 and (
        len(inbox) > LONGEST_REQUEST_LINE + 4
    ):
        raise UriTooLong
    if len(inbox) > most or end >= 0:
        raise HeadersTooLarge
    if BARE_LF.search(inbox, max(0, seen - 1)):
        raise BadRequest("A line of the head does not end with CRLF.")
    return None


def parse_head(cfg: Any, head: bytes, peer: tuple[str, int]) -> Any:
    """Gunicorn's request for a complete head; raises a Problem if the head is refused."""
    try:
        return Request(cfg, IterUnreader([head]), peer)
    except errors.LimitRequestLine:
        raise UriTooLong from None
    except errors.LimitRequestHeaders:
        raise HeadersTooLarge from None
    except errors.UnsupportedTransferCoding:
        raise UnsupportedCoding from None
    except errors.ExpectationFailed:
        raise ExpectationNotMet from None
    except (errors.ParseException, errors.NoMoreData, StopIteration, ValueError):
        raise BadRequest from None


class SizedBody:
    """A body with an announced length."""

    def __init__(self, length: int, limit: int) -> None:
        if length > limit:
            raise PayloadTooLarge(f"The body may have at most {limit} bytes.")
        self.length = length
        self.content = b""

    def take(self, inbox: bytearray) -> bool:
        """Takes the body's bytes off the inbox; returns whether it is complete."""
        if len(inbox) < self.length:
            return False
        self.content = bytes(inbox[: self.length])
        del inbox[: self.length]
        return True


class ChunkedBody:
    """A body in chunks (RFC 9112 section 7.1); extensions and trailers are checked and dropped."""

    def __init__(self, request: Any, limit: int) -> None:
        self._request = request
        self._limit = limit
        self._chunks = bytearray()
        self._missing: int | None = None
        self._count = 0
        self._in_trailers = False
        self.content = b""

    def take(self, inbox: bytearray) -> bool:
        """As SizedBody.take."""
        while not self._in_trailers:
            if self._missing is None and not self._take_size(inbox):
                return False
            if not self._in_trailers and not self._take_chunk(inbox):
                return False
        return self._take_trailers(inbox)

    def _take_size(self, inbox: bytearray) -> bool:
        end = inbox.find(b"\n", 0, LONGEST_SIZE_LINE)
        if end < 0:
            if len(inbox) >= LONGEST_SIZE_LINE:
                raise BadRequest("The size of a chunk is not well-formed.")
            return False
        line = SIZE_LINE.fullmatch(bytes(inbox[: end - 1])) if inbox[end - 1 : end] == b"\r" else None
        if line is None or not CHUNK_EXT_RE.fullmatch((line[2] or b"").lstrip(b" \t")):
            raise BadRequest("The size of a chunk is not well-formed.")
        del inbox[: end + 1]
        self._missing = int(line[1], 16)
        self._count += 1
        if self._count > SMALL_CHUNKS and len(self._chunks) < self._count * LEAST_MEAN_CHUNK:
            raise BadRequest("The chunks are too small to be read efficiently.")
        self._in_trailers = self._missing == 0
        if len(self._chunks) + self._missing > self._limit:
            raise PayloadTooLarge(f"The body may have at most {self._limit} bytes.")
        return True

    def _take_chunk(self, inbox: bytearray) -> bool:
        assert self._missing is not None
        if len(inbox) < self._missing + 2:
            return False
        if inbox[self._missing : self._missing + 2] != b"\r\n":
            raise BadRequest("A chunk does not end with CRLF.")
        self._chunks += inbox[: self._missing]
        del inbox[: self._missing + 2]
        self._missing = None
        return True

    def _take_trailers(self, inbox: bytearray) -> bool:
        if inbox.startswith(b"\r\n"):
            del inbox[:2]
        elif (end := inbox.find(END)) >= 0:
            try:
                self._request.parse_headers(bytes(inbox[:end]), from_trailer=True)
            except errors.ParseException:
                raise BadRequest("A trailer is not well-formed.") from None
            del inbox[: end + 4]
        elif len(inbox) > LONGEST_TRAILERS:
            raise HeadersTooLarge
        else:
            if BARE_LF.search(inbox):
                raise BadRequest("A trailer does not end with CRLF.")
            return False
        self.content = bytes(self._chunks)
        return True


Body = SizedBody | ChunkedBody


def body_of(request: Any, limit: int) -> Body:
    """The body that follows the head; PayloadTooLarge if it announces more than `limit` bytes."""
    fields = dict(request.headers)
    if "TRANSFER-ENCODING" in fields:
        codings = [
            word.strip().lower()
            for name, value in request.headers
            if name == "TRANSFER-ENCODING"
            for word in value.split(",")
        ]
        if codings != ["chunked"]:
            raise UnsupportedCoding
        return ChunkedBody(request, limit)
    length = fields.get("CONTENT-LENGTH", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 18:  # noqa: PLR2004 - digits of an exabyte
        raise BadRequest
    return SizedBody(int(length), limit)
