"""The heat map of the `needle` suite: depth over length, green where all was found."""

import re
from pathlib import Path
from typing import Any

from hy3.errors import Hy3Error


def draw(rows: dict[str, Any], path: Path) -> None:
    """`rows`: the suite's scores, by "N tokens, depth X"."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise Hy3Error("A picture needs matplotlib", "pip install 'hy3[eval]', or leave out --png") from None
    cells = {}
    for name, score in rows.items():
        if found := re.fullmatch(r"(\d+) tokens, depth ([\d.e-]+)", name):
            cells[int(found[1]), float(found[2])] = score["share"]
    lengths = sorted({length for length, _ in cells})
    depths = sorted({depth for _, depth in cells})
    shares = [[cells.get((length, depth), float("nan")) for length in lengths] for depth in depths]
    figure, axes = pyplot.subplots(
        figsize=(2 + 0.8 * len(lengths), 1.5 + 0.5 * len(depths)), layout="constrained"
    )
    image = axes.imshow(shares, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth:g}" for depth in depths])
    axes.set_xlabel("tokens")
    axes.set_ylabel("depth")
    figure.colorbar(image, label="found")
    aside = path.with_name(path.name + ".part")
    figure.savefig(aside, format="png", dpi=120)
    pyplot.close(figure)
    aside.replace(path)
