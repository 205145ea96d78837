"""Makes tables.json beside it: the RoPE tables that `transformers` computes for the cases of
support/rope_cases.py.

    python tests/data/rope/make.py     (needs torch and transformers; the test that reads the file does not)
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from live.torch_hy3 import rope_table  # noqa: E402
from support.rope_cases import CASES  # noqa: E402


def main() -> None:
    tables: dict[str, Any] = {}
    for name, (head_dim, ctx, rope) in CASES.items():
        inv_freq, factor = rope_table(head_dim, ctx, rope)
        tables[name] = {"inv_freq": inv_freq.tolist(), "attention_factor": factor}
    (HERE / "tables.json").write_text(json.dumps(tables, indent=0) + "\n")


if __name__ == "__main__":
    main()
