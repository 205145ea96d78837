// hy3.h: the tokenizer.
#include <vector>

#include "api/handles.h"
#include "core/bpe.h"

using namespace hy3::api;

extern "C" {

hy3_status hy3_tokenizer_open(const hy3_gguf* file, hy3_tokenizer** out) {
    return guard([&] { *out = new hy3_tokenizer{hy3::read_tokenizer(*file->file)}; });
}

void hy3_tokenizer_free(hy3_tokenizer* tokenizer) {
    delete tokenizer;
}

hy3_status hy3_tokenizer_encode(const hy3_tokenizer* tokenizer, hy3_str text, bool special, bool bos,
                                void (*take)(void* user, const int32_t* ids, size_t n), void* user) {
    return guard([&] {
        const std::vector<int32_t> ids = tokenizer->tokenizer->encode(view(text), special, bos);
        take(user, ids.data(), ids.size());
    });
}

hy3_status hy3_tokenizer_decode(const hy3_tokenizer* tokenizer, const int32_t* ids, size_t n, bool special,
                                void (*take)(void* user, hy3_str text), void* user) {
    return guard([&] { take(user, view(tokenizer->tokenizer->decode({ids, n}, special))); });
}

hy3_status hy3_tokenizer_piece(const hy3_tokenizer* tokenizer, int32_t id, hy3_str* out) {
    return guard([&] { *out = view(tokenizer->tokenizer->piece(id)); });
}

int32_t hy3_tokenizer_id(const hy3_tokenizer* tokenizer, hy3_str text) {
    return tokenizer->tokenizer->token_id(view(text)).value_or(-1);
}

hy3_status hy3_tokenizer_is_control(const hy3_tokenizer* tokenizer, int32_t id, bool* out) {
    return guard([&] { *out = tokenizer->tokenizer->is_control(id); });
}

int32_t hy3_tokenizer_bos(const hy3_tokenizer* tokenizer) {
    return tokenizer->tokenizer->bos_id();
}

size_t hy3_tokenizer_vocab(const hy3_tokenizer* tokenizer) {
    return tokenizer->tokenizer->vocab_size();
}

void hy3_tokenizer_eos(const hy3_tokenizer* tokenizer, const int32_t** ids, size_t* n) {
    *ids = tokenizer->tokenizer->eos_ids().data();
    *n = tokenizer->tokenizer->eos_ids().size();
}

hy3_status hy3_rebuild_merges(const hy3_str* tokens, const int32_t* types, size_t n,
                              void (*visit)(void* user, hy3_str merge), void* user) {
    return guard([&] {
        std::vector<std::string_view> texts;
        texts.reserve(n);
        for (size_t i = 0; i < n; i++) texts.push_back(view(tokens[i]));
        const std::span<const int32_t> kinds(types, types == nullptr ? 0 : n);
        for (const std::string& merge : hy3::rebuild_merges(texts, kinds)) visit(user, view(merge));
    });
}

hy3_status hy3_decoder_new(const hy3_tokenizer* tokenizer, bool special, hy3_decoder** out) {
    return guard([&] {
        *out = new hy3_decoder{tokenizer->tokenizer, hy3::StreamDecoder(*tokenizer->tokenizer, special)};
    });
}

void hy3_decoder_free(hy3_decoder* decoder) {
    delete decoder;
}

hy3_status hy3_decoder_push(hy3_decoder* decoder, int32_t id, void (*take)(void* user, hy3_str text),
                            void* user) {
    return guard([&] { take(user, view(decoder->decoder.push(id))); });
}

hy3_status hy3_decoder_finish(hy3_decoder* decoder, void (*take)(void* user, hy3_str text), void* user) {
    return guard([&] { take(user, view(decoder->decoder.finish())); });
}

}  // extern "C"
