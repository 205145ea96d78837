"""How fast the tokenizer is: seconds for 1 MiB of several texts, and for runs of one character.

python tools/time_tokenizer.py [MODEL.gguf]      without a file: the bundled model's tokenizer
"""

import sys
import time
from importlib.resources import files

import hy3core

MEBIBYTE = 1 << 20
SENTENCES = {
    "English": "The quick brown fox, 42 years old, doesn't jump over 1,234 lazy dogs.\n",
    "Chinese": "今天天气很好，我们去公园散步，看到了很多花。\n",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.\n",
    "code": "for (int i = 0; i < n; i++) {\n    total += values[i] * weights[i];  // sum\n}\n",
    "emoji": "Great! 👍🏽 See you at 10:30 👩‍👩‍👧 ☕\n",
}


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else str(files("hy3") / "models" / "hy3-tiny.gguf")
    tokenizer = hy3core.Tokenizer(path)
    texts = {f"1 MiB of {name}": fill(text, MEBIBYTE) for name, text in SENTENCES.items()}
    for count in (10_000, 100_000, 1_000_000):
        texts |= {f"{count:,} times {character!r}": character * count for character in ("a", " ", "9")}
    for name, text in texts.items():
        begin = time.perf_counter()
        ids = tokenizer.encode(text)
        print(f"{name:28} {time.perf_counter() - begin:6.3f} s  {len(ids):9,} tokens")


def fill(text: str, nbytes: int) -> str:
    return text * (nbytes // len(text.encode()) + 1)


if __name__ == "__main__":
    main()
