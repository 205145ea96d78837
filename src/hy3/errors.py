"""The errors a user can act on. Each reads `WHAT. HINT.`: what is wrong, by name, and what to do about it.

The engine raises its own, `hy3core.Error` and its subclasses, in the same form; `hy3.cli` prints both alike.
"""


class Hy3Error(Exception):
    """Something the user asked for cannot be done. `what` and `hint` are sentences without their full
    stops."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.what = what
        self.hint = hint
        super().__init__(sentences(what, hint))


def sentences(*parts: str) -> str:
    """The parts that are not empty, each ended by one full stop unless it ends a sentence by itself."""
    kept = [part.rstrip() for part in parts if part.strip()]
    return " ".join(part if part.endswith((".", "!", "?", ":")) else part + "." for part in kept)
