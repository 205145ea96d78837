"""What a comparison of speeds measured, and how it reads: medians, ratios, shares of the machine's limits."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hy3.bench import Measurement


def workload(what: str, tokens: int, depth: int) -> str:
    """Its name."""
    return f"{what} {tokens}" + (f" at depth {depth}" if depth else "")


@dataclass(frozen=True)
class Machine:
    """What it could do at most, measured in the same run."""

    read_bytes: float  # a second
    int8_ops: float  # a second
    span: int  # bytes that were read for it


@dataclass(frozen=True)
class Pairs:
    """One workload, by both engines in turn."""

    hy3: Measurement
    llama: Measurement
    llama_variant: str
    machine: Machine

    @property
    def ratios(self) -> list[float]:
        """hy3 to llama.cpp by round."""
        return [ours / theirs for ours, theirs in zip(self.hy3.rates, self.llama.rates, strict=True)]

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return self.hy3.rate / self.llama.rate

    @property
    def what(self) -> str:
        return self.hy3.what

    @property
    def depth(self) -> int:
        return self.hy3.depth

    @property
    def limit(self) -> str:
        return "read bandwidth" if self.what == "decode" else "int8 rate"

    @property
    def name(self) -> str:
        return workload(self.what, self.hy3.tokens, self.depth)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ratio": self.ratio,
            "ratios": self.ratios,
            "hy3": self.hy3.to_json(self.machine),
            "llama": self.llama.to_json(self.machine),
            "llama_variant": self.llama_variant,
            "machine": asdict(self.machine),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Pairs":
        """What follows from the numbers is left out: it is computed again."""
        machine = Machine(**found["machine"])
        return cls(measured(found["hy3"]), measured(found["llama"]), found["llama_variant"], machine)

    def __str__(self) -> str:
        ours, theirs, machine = self.hy3, self.llama, self.machine
        return (
            f"{self.name}: hy3 {ours.rate:.2f} tokens/s ({ours.share(machine):.0%} of the {self.limit}), "
            f"llama.cpp {theirs.rate:.2f} ({theirs.share(machine):.0%}; {self.llama_variant}); ratio "
            f"{self.ratio:.2f} (from {min(self.ratios):.2f} to {max(self.ratios):.2f} in {len(self.ratios)} "
            f"pairs); this minute {machine.read_bytes / 1e9:.1f} GB/s over "
            f"{machine.span / 2**30:.1f} GiB, {machine.int8_ops / 1e9:.0f} GOPS int8"
        )


@dataclass(frozen=True)
class Report:
    """Everything about one file."""

    model: str
    file_bytes: int
    threads: int
    kv: str
    isa: str
    pairs: list[Pairs]
    private_bytes: int  # of hy3's process, beyond the mapped file and the KV cache

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"pairs": [pairs.to_json() for pairs in self.pairs]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Report":
        return cls(**found | {"pairs": [Pairs.from_json(pairs) for pairs in found["pairs"]]})


def measured(found: dict[str, Any]) -> Measurement:
    own = {field.name: found[field.name] for field in fields(Measurement)}
    return Measurement(**own | {"seconds": tuple(found["seconds"])})


def write_json(path: Path, content: Any) -> None:
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(content, indent=1) + "\n")
    aside.replace(path)


def plot_depths(path: Path, pairs: Iterable[Pairs], title: str) -> None:
    """Decoding speed over the tokens in the context, medians with the range of the rounds."""
    from matplotlib.figure import Figure

    decodes: Sequence[Pairs] = sorted((p for p in pairs if p.what == "decode"), key=lambda p: p.depth)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    depths = [p.depth for p in decodes]
    for label, found in (("hy3", [p.hy3 for p in decodes]), ("llama.cpp", [p.llama for p in decodes])):
        below = [one.rate - min(one.rates) for one in found]
        above = [max(one.rates) - one.rate for one in found]
        medians = [one.rate for one in found]
        axes.errorbar(depths, medians, yerr=[below, above], marker="o", capsize=3, label=label)
    axes.set(xlabel="tokens in the context", ylabel="decoded tokens per second", title=title, ylim=(0, None))
    axes.legend()
    figure.savefig(path)
