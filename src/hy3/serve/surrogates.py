"""Halves of surrogate pairs in JSON. Clients that cut a text short in the middle of an emoji write them; they
are no characters, and no answer could repeat them.
"""

import re

ANY = re.compile(rb"\\u[dD][89a-fA-F]")  # of a pair too
# A pair, a half, any other escape: so that the second of two backslashes begins none.
ESCAPE = re.compile(
    rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


def suspected(body: bytes) -> bool:
    return ANY.search(body) is not None


def mended(body: bytes) -> bytes:
    """Halves become U+FFFD, as bytes that are no UTF-8 do."""
    return ESCAPE.sub(lambda escape: rb"\ufffd" if escape["half"] else escape[0], body)
