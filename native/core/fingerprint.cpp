#include "core/fingerprint.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "core/model.h"
#include "core/xxhash.h"

namespace hy3 {
namespace {

// Of each tensor: windows of `window` bytes, spread evenly from its first to its last byte.
constexpr uint64_t windows = 4, window = 1024;

template <typename T>
void add(Xxh64& hash, T value) {
    static_assert(std::is_arithmetic_v<T>);
    hash.update(&value, sizeof(value));
}

void add_text(Xxh64& hash, std::string_view text) {
    add(hash, static_cast<uint64_t>(text.size()));
    hash.update(text.data(), text.size());
}

void add_config(Xxh64& hash, const Config& c) {
    for (const int value : {c.n_layers, c.n_mtp_layers, c.hidden, c.n_heads, c.n_kv_heads, c.head_dim, c.ffn,
                            c.n_experts, c.n_experts_used, c.n_shared_experts, c.expert_ffn, c.shared_ffn,
                            c.vocab, static_cast<int>(c.gating), int{c.route_norm}, int{c.tied_head}})
        add(hash, static_cast<int32_t>(value));
    add(hash, c.rms_eps);
    add(hash, c.router_scale);
}

void add_tensor(Xxh64& hash, const TensorInfo& tensor) {
    add_text(hash, tensor.name);
    add(hash, static_cast<uint32_t>(tensor.type));
    add(hash, tensor.shape.size());
    for (const uint64_t dim : tensor.shape) add(hash, dim);
    const uint64_t size = std::min(window, tensor.nbytes);
    const uint64_t span = tensor.nbytes - size;
    for (uint64_t i = 0; i < windows; i++)
        hash.update(tensor.data + (i == windows - 1 ? span : span / (windows - 1) * i), size);
}

}  // namespace

uint64_t fingerprint(const Model& model, AbortCheck& abort) {
    Xxh64 hash;
    const auto add_tensors = [&](const Gguf& file) {
        for (const TensorInfo& tensor : file.tensors()) {
            if (abort()) fail(Status::aborted, "Looking at the model's tensors was stopped.");
            add_tensor(hash, tensor);
        }
    };
    add_config(hash, model.config());
    for (const float frequency : model.rope().inv_freq) add(hash, frequency);
    add(hash, model.rope().scale);
    add_tensors(*model.file());
    if (model.mtp_file()) add_tensors(*model.mtp_file());
    return hash.digest();
}

}  // namespace hy3
