"""Bodies become typed objects."""

from typing import TypeVar

import msgspec

from clusters.drivers.port import Ambiguous

JSON_MISTAKES = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """The decoded body. Raises Ambiguous if the server's response has another shape than requested."""
    try:
        return decoder.decode(body)
    except JSON_MISTAKES:
        raise Ambiguous("the server answered with JSON of an unexpected shape") from None
