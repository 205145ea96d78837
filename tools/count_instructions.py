"""Counts the instructions of products on 64-bit Arm, under qemu, for docs/performance.md.

    cmake -G Ninja -S . -B build/arm64 -DHY3_PYTHON=OFF -DHY3_BUILD_TESTS=ON \\
        -DCMAKE_TOOLCHAIN_FILE=cmake/arm64-linux.cmake && ninja -C build/arm64 hy3_one_product
    python tools/count_instructions.py [--isa neon_dotprod] [TYPE...]

Prints, for each type, instructions for each 32 weights: all of them with one row of activations, where
unpacking and multiplying are often one loop, and with four rows those of unpacking and of multiplying.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "build/arm64/tests/native/hy3_one_product"
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
# Each instruction is a block of its own, and qemu writes a line for each block, with the function's name; of
# the program alone, which is loaded here, without its libraries.
LOG = ["-singlestep", "-d", "exec,nochain", "-dfilter", "0x5500000000+0x1000000"]
WEIGHTS = 16 * 1024  # of hy3_one_product
QUANTIZED = "q8_0 q4_0 q4_1 q5_0 q5_1 q6_k q5_k q4_k q3_k q2_k iq4_nl iq4_xs mxfp4"
GRIDS = "iq3_s iq3_xxs iq2_s iq2_xs iq2_xxs iq1_m iq1_s"
FLOATS = "f32 f16 bf16"


def count(program: Path, isa: str, weight_type: str, rows: int) -> tuple[float, float]:
    """Instructions for each 32 weights: of unpacking and of multiplying."""
    command = [*QEMU, *LOG, str(program), weight_type, str(rows)]
    unpacking = multiplying = 0
    with subprocess.Popen(
        command, env=os.environ | {"HY3_ISA": isa}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            function = line.rpartition(" ")[2]
            unpacking += "unpack_" in function
            multiplying += "Product" in function or "few_rows" in function
    if process.returncode != 0 or multiplying == 0:
        raise SystemExit(f"{' '.join(command)} did not run: {process.returncode}")
    return unpacking * 32 / WEIGHTS, multiplying * 32 / WEIGHTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("types", nargs="*", default=f"{QUANTIZED} {GRIDS} {FLOATS}".split())
    parser.add_argument("--isa", default="neon_dotprod")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    arguments = parser.parse_args()
    print("| type | 1 row | 4 rows: unpack | multiply |\n|---|---|---|---|")
    for weight_type in arguments.types:
        one = sum(count(arguments.program, arguments.isa, weight_type, 1))
        unpacking, four = count(arguments.program, arguments.isa, weight_type, 4)
        print(f"| {weight_type} | {one:.1f} | {unpacking:.1f} | {four:.1f} |", flush=True)


if __name__ == "__main__":
    main()
