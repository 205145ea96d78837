"""The tokenizer: byte-level BPE of about 1,000 entries with the published special tokens and pre-tokenizer.

The merges are learned on the curriculum's own text with every digit on its own, so that no merge joins digits
and a number is always spelled digit by digit, whatever its neighbours; the pre-tokenizer stored in the file
is the family's (groups of up to three digits), which gives the same tokens as there is no merge to apply
inside a group.

    python -m train.tokenizer --out DIR
"""

import argparse
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from train import tasks, template, tools

# The three splits of `hunyuan-dense`, one after the other, each isolating its matches.
SPLITS = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]

BPE_ENTRIES = 976  # 256 bytes and 720 merges; with the special tokens 1,000


def corpus(seed: int = 0, lines: int = 6000) -> Iterator[str]:
    """Training text of the tasks (never held-out contents), with the template's own words."""
    rng = random.Random(seed)
    special = re.compile("|".join(map(re.escape, template.CONTROL + template.TAGS)))
    for effort in ("no_think", "low", "high"):
        prompt = template.render([tasks.user("Hello")], list(tools.TOOLS.values()), effort)
        yield from special.split(prompt) * (lines // 30)
    for _ in range(lines):
        draws = [
            tasks.sums(rng, False, turns=1),
            tasks.recall(rng, False, 30),
            tasks.talk(rng, False),
            tools.tool_calls(rng, False, turns=1),
        ]
        for conversation in draws:
            for message in conversation.messages:
                yield message["content"]


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def train(seed: int = 0) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizer()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_ENTRIES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed), trainer)
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in template.CONTROL]
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in template.TAGS])
    return tokenizer


def save(tokenizer: Tokenizer, out: Path) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja, as a hub checkpoint has them."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    added = tokenizer.get_added_tokens_decoder()
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": template.BOS,
        "eos_token": template.EOS,
        "pad_token": template.PAD,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "added_tokens_decoder": {
            str(i): {
                "content": token.content,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": token.special,
            }
            for i, token in sorted(added.items())
        },
    }
    (out / "tokenizer_config.json").write_text(
        json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
    )
    shutil.copy(template.PATH, out / "chat_template.jinja")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    save(train(), args.out)
