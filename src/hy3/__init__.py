"""hy3: the Hy3 model family on your own machine. The command line is `hy3.cli`; the engine is `hy3core`."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`hy3.__version__` is the engine's: read when asked for, so that importing `hy3` stays cheap."""
    if name == "__version__":
        import hy3core

        return hy3core.version
    raise AttributeError(f"module 'hy3' has no attribute {name!r}")
