"""Sampling settings: what was asked for, else what the model file recommends (`general.sampling.*`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from hy3.errors import Hy3Error

# hy3core.Sampling's name, the option's, the end of the file's key, and the values that make sense.
SETTINGS: Sequence[tuple[str, str, str, float, float]] = (
    ("temperature", "temp", "temp", 0.0, 100.0),
    ("top_k", "top_k", "top_k", 0, (1 << 31) - 1),
    ("top_p", "top_p", "top_p", 0.0, 1.0),
    ("min_p", "min_p", "min_p", 0.0, 1.0),
    ("repeat_penalty", "repeat_penalty", "penalty_repeat", 0.01, 100.0),
)


def settings(metadata: Mapping[str, Any], options: Any) -> dict[str, Any]:
    """Arguments of hy3core.Sampling: the options (attributes named as on the command line, None: not given),
    for the others the file's; what neither has is left out."""
    found: dict[str, Any] = {}
    for name, option, key, least, most in SETTINGS:
        given = getattr(options, option)
        value = recommended(metadata, option, key, least, most) if given is None else given
        if value is not None:
            found[name] = value
    return found


def recommended(metadata: Mapping[str, Any], option: str, name: str, least: float, most: float) -> Any:
    """The value of a `general.sampling` key; None where the file has none."""
    key = f"general.sampling.{name}"
    value = metadata.get(key)
    if value is None:
        return None
    kind = int if isinstance(least, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        raise Hy3Error(
            f"The model file's key {key} is {value!r}, not a number from {least:g} to {most:g}",
            f"Give --{option.replace('_', '-')} yourself",
        )
    return value
