"""Reasoning in the opaque field that a client keeps and sends back (`encrypted_content`).

Some clients keep nothing else of it. There is nothing to hide from someone who was shown the reasoning
itself, so it is encoded, not encrypted.
"""

import base64

PREFIX = "hy3:"


def pack(text: str) -> str:
    return PREFIX + base64.b64encode(text.encode()).decode()


def unpack(field: str) -> str:
    """Empty if it is not one of ours."""
    if not field.startswith(PREFIX):
        return ""
    try:
        return base64.b64decode(field[len(PREFIX) :], validate=True).decode()
    except ValueError:
        return ""
