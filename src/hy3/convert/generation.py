"""generation_config.json as `general.sampling.*` keys: how the model's makers want it sampled."""

from __future__ import annotations

from pathlib import Path

from hy3.convert.hf_config import Config
from hy3.convert.safetensors_file import read_json
from hy3.convert.source import Entry


def read(directory: Path) -> Config | None:
    path = directory / "generation_config.json"
    return Config(path, read_json(path)) if path.exists() else None


def sampling_metadata(directory: Path) -> list[Entry]:
    config = read(directory)
    if config is None:
        return []
    p = "general.sampling."
    entries: list[Entry] = []
    if config.values.get("do_sample") is False:
        return [(p + "temp", "f32", 0.0)]  # the other values have no meaning then
    if config.has("top_k"):
        top_k = config.integer("top_k", least=-1)
        entries.append((p + "top_k", "i32", max(top_k, 0)))  # -1 and 0 both mean off
    for key, name in {
        "top_p": "top_p",
        "min_p": "min_p",
        "temperature": "temp",
        "repetition_penalty": "penalty_repeat",
    }.items():
        value = config.values.get(key)
        if value is None:
            continue
        zero_allowed = key in ("min_p", "temperature") and value == 0
        entries.append((p + name, "f32", 0.0 if zero_allowed else config.number(key)))
    return entries
