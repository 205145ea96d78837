"""Random texts for every branch of the pre-tokenizers: scripts, emoji, marks, digits, controls, spaces."""

import random
import unicodedata
from collections.abc import Callable, Sequence

_WORDS = (
    "the of and to in is that it was for on are with as they be at one have this from or had by hot but "
    "some what there we can out other were all your when up use word how said each which their time if "
    "will way about many der die und das nicht ein für größer Straße Mädchen être déjà où français naïve "
    "cœur señor mañana ¿qué corazón não ação você às świat żółć łódź český příliš žluťoučký kůň İstanbul "
    "ılık ğüşöç đường người Việt được привет мир это не что человек день ещё объект καλημέρα κόσμε "
    "άνθρωπος έτσι մարդ բարեւ გამარჯობა საქართველო مرحبا بالعالم كتاب شكراً שלום עולם תודה नमस्ते दुनिया "
    "हिन्दी क्षत्रिय বাংলা ভাষা தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം සිංහල สวัสดี ชาวโลก ภาษาไทย ລາວ བོད་སྐད "
    "မြန်မာ ភាសាខ្មែរ አማርኛ ሰላም ᠮᠣᠩᠭᠣᠯ 안녕하세요 세계 한국어 사람 你好 世界 中文 语言模型 人工智能 混元 "
    "我们 他们 什么 時間 漢字 臺灣 龥 日本語 ひらがな カタカナ コンピューター・プログラム がぎぐげご ゔ "
    "ヴァイオリン ヿ ゟ 々 〇 〆 ㍿"
)
WORDS = _WORDS.split()

# (first, last) code points of blocks with different categories side by side
_RANGES = (
    "20-7E A0-17F 180-24F 250-36F 370-3FF 400-52F 530-58F 590-5FF 600-6FF 700-8FF 900-97F 980-DFF E00-EFF "
    "F00-FFF 1000-109F 10A0-137F 1380-17FF 1800-1AFF 1B00-1DFF 1E00-1FFF 2000-206F 2070-218F 2190-23FF "
    "2400-27BF 27C0-2BFF 2C00-2E7F 2E80-3040 3040-30FF 3100-33FF 3400-4DFF 4E00-4EFF 9F90-A0FF A100-ABFF "
    "AC00-D7FF E000-F8FF F900-FDFF FE00-FFFF 10000-103FF 10400-10FFF 11000-11FFF 12000-16FFF 1B000-1BFFF "
    "1D000-1D7FF 1D800-1E7FF 1E800-1EFFF 1F000-1FAFF 1FB00-2A6DF E0000-E01EF"
)
RANGES = [tuple(int(end, 16) for end in pair.split("-")) for pair in _RANGES.split()]

SPACES = " \t\n\r\v\f\x1c\x85\xa0\u1680\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
CONTROLS = [
    chr(c)
    for c in (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x200D, 0x200E, 0x202E, 0x2060, 0xFEFF, 0xFFFD)
]
_EMOJI = "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵 ❤️ ☺ ✈︎ 👨🏿‍🚀 1️⃣ #️⃣ 🫠 🧑‍⚕️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ™️ ㊙️ 🀄 ⌚ 🫶🏻"
EMOJI = _EMOJI.split(" ")
_CONTRACTIONS = (
    "'s|'S|'t|'re|'RE|'rE|'ve|'Ve|'m|'ll|'lL|'d|'D|'ſ|'|''s|'r|'v|'l|'x|’s|'st|'dd|'\u212a|'re'| 's|'ſſ"
)
CONTRACTIONS = _CONTRACTIONS.split("|")
SNIPPETS = [
    "def f(x): return x**2  # square\n",
    "#include <stdio.h>\r\n",
    "if (a<=b && c!=d) {x->y++;}",
    '<div class="a">&amp;</div>',
    '{"key": [1, 2.5e-10, null], "ü": "\\u00e9"}\n',
    "https://example.org/~a/b?c=d&e=%20#f",
    "SELECT * FROM t;\n\n",
    "a.b_c-D/e\\f",
    "\t\tindented\n    four\n",
    "3.14159 1,000,000 0x1F 11+22+33=66",
    "\\frac{a}{b}\\n",
    "$x^2$ `code` |a|b|",
    "e.g., i.e. etc.",
]


def all_code_points(category: str) -> list[str]:
    """The characters whose general category begins so, as far as this Python's Unicode knows them."""
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)).startswith(category)]


NUMBERS = all_code_points("N")
MARKS = all_code_points("M")


class TextMaker:
    """The same seed makes the same texts. `special`: texts of special tokens, to embed whole and broken."""

    def __init__(self, seed: int, special: list[str]):
        self.random = random.Random(seed)
        self.special = special
        self.makers: list[Callable[[], str]] = [
            *(self.words, self.block, self.anywhere, self.digits, self.marked, self.spaces, self.emoji),
            *(self.controls, self.contraction, self.snippet, self.token, self.broken_token, self.repeated),
            self.punctuation,
        ]

    def text(self) -> str:
        parts = [self.random.choice(self.makers)() for _ in range(self.random.randint(1, 6))]
        return "".join(parts)

    def some(self, pool: Sequence[str], most: int) -> str:
        return "".join(self.random.choices(pool, k=self.random.randint(1, most)))

    def words(self) -> str:
        words = self.random.choices(WORDS, k=self.random.randint(1, 8))
        separator = self.random.choice([" ", " ", " ", "", ", ", "  ", "\n", "-", "、", "。"])
        words = [w.upper() if self.random.random() < 0.1 else w for w in words]
        return separator.join(words)

    def block(self) -> str:
        first, last = self.random.choice(RANGES)
        return "".join(chr(self.random.randint(first, last)) for _ in range(self.random.randint(1, 12)))

    def anywhere(self) -> str:
        points = [self.random.randrange(0x110000 - 0x800) for _ in range(self.random.randint(1, 6))]
        return "".join(chr(c if c < 0xD800 else c + 0x800) for c in points)

    def digits(self) -> str:
        pool = self.random.choice(["0123456789", NUMBERS])
        return self.random.choice(["", " ", "-", "$", "٪"]) + self.some(pool, 11)

    def marked(self) -> str:
        base = self.random.choice(["a", "е", "क", "ס", "か", "1", " ", "!", "\n", "中", ""])
        return base + self.some(MARKS, 4)

    def spaces(self) -> str:
        return self.some(self.random.choice([" ", " \n", "\r\n", " \t", SPACES]), 8)

    def emoji(self) -> str:
        return self.some(EMOJI, 3)

    def controls(self) -> str:
        return self.some(CONTROLS, 4) + self.random.choice(["", "a", "1", "é"])

    def contraction(self) -> str:
        return (
            self.random.choice(WORDS) + self.some(CONTRACTIONS, 3) + self.random.choice(["", " ", "a", "1"])
        )

    def snippet(self) -> str:
        return self.random.choice(SNIPPETS)

    def token(self) -> str:
        return self.some(self.special, 3) if self.special else ""

    def broken_token(self) -> str:
        token = self.random.choice(self.special or ["<a>"])
        cut = self.random.randrange(len(token))
        return self.random.choice(
            [token[:cut], token[cut:], token[:cut] + " " + token[cut:], token[:cut] + token]
        )

    def repeated(self) -> str:
        return self.random.choice(
            ["a", " ", "\n", "=", "-", "中", "ー", "1", "😀", "़", "ab", "! ", "\r\n"]
        ) * self.random.randint(2, 40)

    def punctuation(self) -> str:
        pool = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~—…«»“”。，！？、・￥€±×÷→∑☃"
        return self.some(pool, 5) + self.random.choice(["", "", "\n", "\r\n\n", "abc", "é", " x"])


def texts(count: int, seed: int, special: list[str]) -> list[str]:
    maker = TextMaker(seed, special)
    return [maker.text() for _ in range(count)]


def corpus(lines: int, seed: int) -> list[str]:
    """Text to train a vocabulary on: words of all the languages, code, numbers."""
    maker = TextMaker(seed, [])
    makers = [
        maker.words,
        maker.words,
        maker.words,
        maker.snippet,
        maker.digits,
        maker.marked,
        maker.emoji,
        maker.spaces,
    ]
    return ["".join(maker.random.choice(makers)() for _ in range(12)) for _ in range(lines)]
