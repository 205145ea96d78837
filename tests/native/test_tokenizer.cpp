// The tokenizer on a vocabulary small enough to follow by hand. Equality with the `tokenizers` library is
// tested in Python.
#include "core/tokenizer.h"

#include "core/bpe.h"
#include "core/unicode.h"
#include "main.h"

namespace {

using hy3::Status;
using hy3::StreamDecoder;
using hy3::Tokenizer;
using hy3::TokenizerSpec;
using hy3::TokenType;
using Ids = std::vector<int32_t>;

// Owns the texts that a TokenizerSpec only views. The first 256 tokens are the single bytes.
struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::vector<std::string> merges;
    std::string pre = "hunyuan-dense";

    Vocabulary() {
        for (int byte = 0; byte < 256; ++byte) {
            const char c = static_cast<char>(byte);
            add(hy3::to_byte_alphabet({&c, 1}));
        }
    }
    int32_t add(const std::string& text, TokenType type = TokenType::normal) {
        tokens.push_back(text);
        types.push_back(static_cast<int32_t>(type));
        return static_cast<int32_t>(tokens.size()) - 1;
    }
    int32_t merge(const std::string& left, const std::string& right) {
        merges.push_back(left + " " + right);
        return add(left + right);
    }
    TokenizerSpec spec() const {
        TokenizerSpec spec;
        spec.file = "x.gguf";
        spec.pre = pre;
        spec.tokens.assign(tokens.begin(), tokens.end());
        spec.types = types;
        spec.merges.assign(merges.begin(), merges.end());
        return spec;
    }
};

std::string show(const Ids& ids) {
    std::string out;
    for (const int32_t id : ids) out += std::to_string(id) + " ";
    return out;
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
    StreamDecoder decoder(tokenizer);
    std::string out;
    for (const int32_t id : ids) {
        const std::string text = decoder.push(id);
        CHECK_EQ(hy3::valid_utf8_prefix(text), text.size());
        out += text;
    }
    return out + decoder.finish();
}

}  // namespace

TEST(tokenizer_merges_by_rank_then_from_the_left) {
    Vocabulary v;
    const int32_t bc = v.merge("b", "c");
    const int32_t ab = v.merge("a", "b");
    const int32_t aa = v.merge("a", "a");
    const Tokenizer tokenizer(v.spec());
    CHECK_EQ(show(tokenizer.encode("abc")), show({'a', bc}));
    CHECK_EQ(show(tokenizer.encode("abab")), show({ab, ab}));
    CHECK_EQ(show(tokenizer.encode("aaa")), show({aa, 'a'}));
    CHECK_EQ(show(tokenizer.encode("")), "");
}

// After b+c, the offer of a+b at the first place is void; taking it for a+bc would go before the more urgent
// bc+d.
TEST(tokenizer_drops_offers_that_no_longer_hold) {
    Vocabulary v;
    v.merge("b", "c");
    v.merge("a", "b");
    const int32_t bcd = v.merge("bc", "d");
    v.merge("a", "bc");
    CHECK_EQ(show(Tokenizer(v.spec()).encode("abcd")), show({'a', bcd}));
}

TEST(tokenizer_long_runs_merge_completely) {
    Vocabulary v;
    std::string run = "a";
    int32_t last = 'a';
    while (run.size() < 64) {
        last = v.merge(run, run);
        run += run;
    }
    const Tokenizer tokenizer(v.spec());
    const std::string text(64 * 2000, 'a');
    CHECK_EQ(show(tokenizer.encode(text)), show(Ids(2000, last)));
}

TEST(tokenizer_finds_special_tokens_longest_first) {
    Vocabulary v;
    const int32_t s = v.add("<s>", TokenType::control);
    const int32_t sx = v.add("<s>x", TokenType::control);
    const int32_t bar = v.add("<｜é｜>", TokenType::control);
    const int32_t user = v.add("[u]", TokenType::user_defined);
    v.add("[PAD260]", TokenType::unused);
    const Tokenizer tokenizer(v.spec());
    CHECK_EQ(show(tokenizer.encode("a<s>x<s><s>")), show({'a', sx, s, s}));
    CHECK_EQ(show(tokenizer.encode("<｜é｜>[u]<s")), show({bar, user, '<', 's'}));
    CHECK_EQ(show(tokenizer.encode("<s>[u]", false)), show({'<', 's', '>', user}));
    CHECK_EQ(tokenizer.encode("[PAD260]").size(), size_t{8});
    CHECK_EQ(tokenizer.decode(Ids{s, 'a', bar, user}), "a[u]");
    CHECK_EQ(tokenizer.decode(Ids{s, 'a', bar, user}, true), "<s>a<｜é｜>[u]");
    CHECK_EQ(tokenizer.piece(bar), "<｜é｜>");
    CHECK_EQ(tokenizer.token_id("<s>x").value_or(-1), sx);
    CHECK(!tokenizer.token_id("[PAD260]").has_value());
    CHECK(tokenizer.is_control(s) && !tokenizer.is_control(user) && !tokenizer.is_control('a'));
}

TEST(tokenizer_replaces_what_is_no_utf8) {
    const Tokenizer tokenizer(Vocabulary().spec());
    const Ids replacement = {0xEF, 0xBF, 0xBD};
    CHECK_EQ(show(tokenizer.encode("\xFF")), show(replacement));
    CHECK_EQ(hy3::replace_invalid_utf8("a\xE2\x82z"), "a\uFFFDz");              // one maximal subpart
    CHECK_EQ(hy3::replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
    CHECK_EQ(hy3::replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
    CHECK_EQ(hy3::replace_invalid_utf8("\xC0\xAF\xF0\x9F\x98"), "\uFFFD\uFFFD\uFFFD");
    CHECK_EQ(tokenizer.decode(Ids{0xF0, 0x9F, 0x98, 'x'}), "\uFFFDx");
}

TEST(tokenizer_streams_whole_characters) {
    const Tokenizer tokenizer(Vocabulary().spec());
    StreamDecoder decoder(tokenizer);
    for (const int32_t id : {0xF0, 0x9F, 0x98}) CHECK_EQ(decoder.push(id), "");
    CHECK_EQ(decoder.push(0x80), "😀");
    CHECK_EQ(decoder.push(0xE2), "");
    CHECK_EQ(decoder.push('a'), "\uFFFDa");
    CHECK_EQ(decoder.push(0xC3), "");
    CHECK_EQ(decoder.finish(), "\uFFFD");
    CHECK_EQ(decoder.finish(), "");
    for (int32_t first = 0; first < 256; ++first) {
        for (int32_t second = 0x70; second < 0x100; second += 3) {
            const Ids ids = {first, second, 0x80, second, 0xBF};
            CHECK_EQ(stream(tokenizer, ids), tokenizer.decode(ids));
        }
    }
}

TEST(tokenizer_finds_the_ends_of_every_generation) {
    Vocabulary v;
    const int32_t bos = v.add("<｜hy_begin_of_sentence:opensource｜>", TokenType::control);
    const int32_t eot = v.add("<｜hy_EOT｜>", TokenType::control);
    const int32_t eos = v.add("<｜hy_eos:opensource｜>", TokenType::control);
    const int32_t document = v.add("<｜hy_end▁of▁document｜>", TokenType::control);
    const int32_t own = v.add("<over>", TokenType::control);
    v.add("<｜hy_User｜>", TokenType::control);
    TokenizerSpec spec = v.spec();
    const Tokenizer by_text(spec);
    CHECK_EQ(show(by_text.eos_ids()), show({eot, eos, document}));
    CHECK_EQ(by_text.bos_id(), bos);
    CHECK_EQ(by_text.eos_id(), eos);
    spec.eos = own;
    const Tokenizer by_key(spec);
    CHECK_EQ(show(by_key.eos_ids()), show({eot, eos, document, own}));
    CHECK_EQ(by_key.eos_id(), own);
    CHECK_EQ(show(by_key.encode("a", true, true)), show({bos, 'a'}));
    CHECK_ERROR(Status::invalid_argument, "no beginning-of-sequence",
                Tokenizer(Vocabulary().spec()).encode("a", true, true));
}

TEST(tokenizer_names_what_is_wrong_in_a_file) {
    const auto check = [](Status status, const std::string& part, auto change) {
        Vocabulary v;
        v.merge("a", "b");
        TokenizerSpec spec = v.spec();
        change(v, spec);
        CHECK_ERROR(status, "x.gguf: ", Tokenizer(spec));
        CHECK_ERROR(status, part, Tokenizer(spec));
    };
    const auto remake = [](Vocabulary& v, TokenizerSpec& spec) { spec = v.spec(); };
    check(Status::unsupported, "\"gpt-9\"", [](auto&, auto& spec) { spec.pre = "gpt-9"; });
    check(Status::unsupported, "hunyuan-dense, deepseek-v3", [](auto&, auto& spec) { spec.pre = ""; });
    check(Status::format, "merges[1], \"a z9\", needs \"z9\"", [&](auto& v, auto& spec) {
        v.merges.push_back("a z9");
        remake(v, spec);
    });
    check(Status::format, "needs \"ba\"", [&](auto& v, auto& spec) {
        v.merges.push_back("b a");
        remake(v, spec);
    });
    for (const char* merge : {"", " ", "ab", "a ", " a"}) {
        check(Status::format, "is no pair", [&](auto&, auto& spec) { spec.merges.push_back(merge); });
    }
    check(Status::format, "merges[1], \"a b\", occurs twice",
          [](auto&, auto& spec) { spec.merges.push_back("a b"); });
    check(Status::format, "merges is missing", [](auto&, auto& spec) { spec.merges.clear(); });
    check(Status::format, "tokens[257] repeats tokens[97], \"a\"", [&](auto& v, auto& spec) {
        v.add("a");
        remake(v, spec);
    });
    check(Status::format, "tokens[257] is empty", [&](auto& v, auto& spec) {
        v.add("", TokenType::control);
        remake(v, spec);
    });
    check(Status::format, "no token for the byte 98", [](auto&, auto& spec) { spec.tokens['b'] = "bb"; });
    check(Status::format, "token_type has 3 entries", [](auto&, auto& spec) { spec.types.resize(3); });
    check(Status::format, "token_type[5] is 6", [](auto&, auto& spec) { spec.types[5] = 6; });
    check(Status::format, "tokens has 0 entries", [](auto&, auto& spec) { spec.tokens.clear(); });
    check(Status::format, "eos_token_id is 257", [](auto&, auto& spec) { spec.eos = 257; });
    check(Status::format, "bos_token_id is -2", [](auto&, auto& spec) { spec.bos = -2; });
    check(Status::format, "eot_token_id is 999", [](auto&, auto& spec) { spec.eot = 999; });
}

TEST(tokenizer_refuses_ids_it_does_not_have) {
    const Tokenizer tokenizer(Vocabulary().spec());
    CHECK_ERROR(Status::invalid_argument, "Token id 256 ", tokenizer.piece(256));
    CHECK_ERROR(Status::invalid_argument, "Token id -1 ", tokenizer.decode(Ids{-1}));
    CHECK_ERROR(Status::invalid_argument, "Token id 256 ", tokenizer.is_control(256));
    StreamDecoder decoder(tokenizer);
    CHECK_ERROR(Status::invalid_argument, "Token id 300 ", decoder.push(300));
}

TEST(tokenizer_rebuilds_merges_in_order_of_ids) {
    // "abc" splits as a|bc and as ab|c; "<s>" is made of tokens too, but is no ordinary token.
    const std::vector<std::string_view> tokens = {"a",  "b",  "c",   "<",  "s",   ">",
                                                  "ab", "bc", "abc", "s>", "<s>", "｜"};
    std::vector<int32_t> types(tokens.size(), 1);
    types[10] = 3;
    std::string joined;
    for (const std::string& merge : hy3::rebuild_merges(tokens, types)) joined += merge + ",";
    CHECK_EQ(joined, "a b,b c,a bc,ab c,s >,");
    const std::string huge(2000, 'a');
    const std::vector<std::string_view> long_token = {huge};
    CHECK_ERROR(Status::unsupported, "Token 0 is 2000 bytes", hy3::rebuild_merges(long_token, {}));
    CHECK_ERROR(Status::format, "1 tokens but 12 token types", hy3::rebuild_merges(long_token, types));
}

TEST(tokenizer_rebuilt_merges_do_what_the_rule_says) {
    Vocabulary v;
    for (const char* text : {"ab", "bc", "abc", "abab", "cab"}) v.add(text);
    const std::vector<std::string_view> tokens(v.tokens.begin(), v.tokens.end());
    v.merges = hy3::rebuild_merges(tokens, v.types);
    const Tokenizer tokenizer(v.spec());
    CHECK_EQ(show(tokenizer.encode("abcab")), show({258, 256}));
    CHECK_EQ(show(tokenizer.encode("ababab")), show({259, 256}));
    CHECK_EQ(show(tokenizer.encode("bcab")), show({257, 256}));
}
