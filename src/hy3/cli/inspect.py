"""`hy3 inspect`: what is in a model file and what running it will take, without loading it."""

import json
import sys
from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import click

from hy3.chat.display import VISIBLE
from hy3.cli.engine import model_path, open_gguf
from hy3.cli.options import DEFAULT_CTX, ctx_option, kv_option
from hy3.memory import available, gib
from hy3.modelfile import ModelFile

LONGEST_VALUE = 100  # characters of a metadata value in the list
LONGEST_ARRAY = 16  # entries of a metadata array in the JSON

DIALECTS = {
    "hy3": "Hy3, runs as it is",
    "original": "the original hy3 engine's: convert first, with `hy3 convert`",
    "foreign": "not a Hy3 model: it will not run",
}
MTP = {
    "present": "present",
    "declared": "declared in the keys, but its tensors are not in the file",
    "none": "none",
}


@click.command()
@click.argument("model", required=False, metavar="M")
@click.option("--tensors", is_flag=True, help="List the tensors as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@ctx_option(f"Predict the memory for a context of N tokens. Left out: {DEFAULT_CTX}.")
@kv_option()
def inspect(model: str | None, tensors: bool, as_json: bool, ctx: int | None, kv: str) -> None:
    """Show the metadata, shapes and types of a model file M, and the memory it will need.

    Also reads files that cannot be run, such as other models' and the original hy3 engine's.
    """
    file = model_path(model)
    described = ModelFile(open_gguf(file))
    facts = describe(file, described, ctx or DEFAULT_CTX, kv)
    if tensors:
        facts["tensors"] = [
            {
                "name": whole(tensor.name),
                "type": str(tensor.type),
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
            }
            for tensor in described.tensors
        ]
    if as_json:
        json.dump(facts, sys.stdout, ensure_ascii=False, indent=1)
        click.echo()
    else:
        print_facts(facts)


def describe(file: Path, described: ModelFile, ctx: int, kv: str) -> dict[str, Any]:
    weights, cache, free = described.weights_bytes, described.kv_bytes(ctx, kv), available()
    needed = None if cache is None else weights + cache
    return {
        "file": str(file),
        "name": shortened(described.name),
        "architecture": whole(described.architecture),
        "dialect": described.dialect,
        "parameters": described.parameters(),
        "mtp": described.mtp,
        "shapes": described.shapes.to_dict(),
        "types": described.types(),
        "memory": {
            "ctx": ctx,
            "kv_type": kv,
            "weights": weights,
            "kv": cache,
            "kv_per_token": described.kv_bytes(1, kv),
            "needed": needed,
            "free": free,
            "fits": None if needed is None or free is None else needed <= free,
            "rope_factor": stretch(ctx, described.shapes.ctx),
        },
        "metadata": {whole(key): shortened(value) for key, value in described.metadata.items()},
    }


def stretch(ctx: int, trained: int | None) -> float | None:
    """The --rope-factor, to two digits after the point, that a context longer than the model's takes."""
    return ceil(100 * ctx / trained) / 100 if trained and ctx > trained else None


def shortened(value: Any) -> Any:
    """A metadata value as JSON. Of a long array (tokens, merges) only the length and the first entries."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, float):  # JSON has no NaN and no infinity
        return value if isfinite(value) else str(value)
    if not isinstance(value, Sequence):
        return value
    first = [shortened(entry) for entry in value[:LONGEST_ARRAY]]
    return first if len(value) <= LONGEST_ARRAY else {"length": len(value), "first": first}


def whole(text: str) -> str:
    """The engine gives what is no UTF-8 in a file's strings as lone surrogates, which cannot be printed."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def print_facts(facts: Mapping[str, Any]) -> None:
    row("file", facts["file"])
    row("name", facts["name"] or "-")
    row("architecture", f"{facts['architecture']} ({DIALECTS[facts['dialect']]})")
    counts = facts["parameters"]
    row("parameters", f"{count(counts['total'])}, {count(counts['active'])} active")
    row(
        "MTP layer",
        MTP[facts["mtp"]] + (f", {count(counts['mtp'])} parameters more" if counts["mtp"] else ""),
    )
    print_shapes(facts["shapes"])
    for name, total in facts["types"].items():
        row(name, f"{gib(total['bytes'])} in {total['tensors']} tensors")
    print_memory(facts["memory"])
    print_stretch(facts["memory"], facts["shapes"]["ctx"])
    click.echo("\nmetadata")
    for key, value in facts["metadata"].items():
        row("  " + key, f"= {one_line(value)}")
    if "tensors" in facts:
        click.echo("\ntensors")
        for tensor in facts["tensors"]:
            shape = " x ".join(map(str, tensor["shape"]))
            size = gib(tensor["bytes"])
            click.echo(f"  {tensor['name'].translate(VISIBLE):<40} {tensor['type']:<8} {shape:<24} {size}")


def print_shapes(shapes: Mapping[str, Any]) -> None:
    known = {name: "?" if value is None else value for name, value in shapes.items()}
    row(
        "layers",
        "{layers}, the first {dense_layers} dense; hidden {hidden}, vocabulary {vocab}".format(**known),
    )
    row("attention", "{heads} heads, {kv_heads} KV heads, head_dim {head_dim}".format(**known))
    row(
        "experts", "{experts}, {experts_used} used, {experts_shared} shared, FFN {expert_ffn}".format(**known)
    )
    row("dense FFN", known["dense_ffn"])
    row("context", "{ctx}, RoPE base {rope_base}".format(**known) + scaled(shapes["rope_scaling"]))


def scaled(scaling: str | None) -> str:
    return f", scaled: {scaling}" if scaling and scaling != "none" else ""


def print_memory(memory: Mapping[str, Any]) -> None:
    if memory["needed"] is None:
        row("memory", f"{gib(memory['weights'])} weights; the file does not say what the KV cache takes")
        return
    row("KV cache", f"{gib(memory['kv'])} for {memory['ctx']} tokens at {memory['kv_type']}")
    needed = f"{gib(memory['needed'])} for weights and KV cache"
    if memory["free"] is None:
        row("memory", needed)
    else:
        row("memory", f"{needed}; {gib(memory['free'])} free: {'fits' if memory['fits'] else 'does NOT fit'}")


def print_stretch(memory: Mapping[str, Any], trained: int) -> None:
    factor = memory["rope_factor"]
    if factor is not None:
        row(
            "",
            f"{memory['ctx']} tokens are more than the {trained} it was made for: --rope-factor {factor:g}",
        )


def row(name: str, value: object) -> None:
    click.echo(f"{name:<14} {value}".translate(VISIBLE))


def count(parameters: int) -> str:
    """123.4B, 11.2M, 5.0K."""
    for factor, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if parameters >= factor:
            return f"{parameters / factor:.1f}{unit}"
    return str(parameters)


def one_line(value: Any) -> str:
    if isinstance(value, dict):
        text = f"{value['length']} entries: {', '.join(map(repr, value['first'][:4]))}, ..."
    else:
        text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."
