"""Makes the tokenizer's golden data: two small vocabularies as GGUF, and their ids for some texts.

    python tests/data/tokenizer/make.py

Needs `tokenizers`, whose ids they are, and `gguf`. The same versions write the same bytes.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from support.tokenizer_peer import CONTROL, SPLITS, USER_DEFINED, train, write_gguf  # noqa: E402
from support.tokenizer_texts import CONTRACTIONS, SNIPPETS, corpus, texts  # noqa: E402

ORDINARY_TOKENS = 900
CASES = 250
LONGEST = 90  # characters: keeps the file small


def main() -> None:
    for seed, pre in enumerate(SPLITS):
        tokenizer = train(pre, ORDINARY_TOKENS, corpus(1500, seed))
        write_gguf(tokenizer, pre, HERE / f"{pre}.gguf")
        fuzzed = [t for t in texts(2 * CASES, seed, CONTROL + USER_DEFINED) if len(t) <= LONGEST][:CASES]
        chosen = ["", *CONTROL, *USER_DEFINED, *SNIPPETS, *("I" + c for c in CONTRACTIONS), *fuzzed]
        lines = []
        for text in chosen:
            ids = {}
            for special in (True, False):
                tokenizer.encode_special_tokens = not special
                ids[special] = tokenizer.encode(text, add_special_tokens=False).ids
            case = {"text": text, "ids": ids[True]}
            if ids[False] != ids[True]:
                case["plain"] = ids[False]  # special tokens as plain text
            lines.append(json.dumps(case, separators=(",", ":")))
        (HERE / f"{pre}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
