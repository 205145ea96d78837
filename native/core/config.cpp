#include "core/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/gguf.h"

namespace hy3 {
namespace {

// Far above any real model, low enough that products of two stay within 63 bits and tables within memory.
constexpr uint64_t max_width = 1u << 22;
constexpr uint64_t max_layers = 2048;

class KeyReader {
  public:
    KeyReader(const Gguf& file, std::string_view arch) : file_(file), prefix_(cat(arch, ".")) {}

    std::string key(std::string_view name) const { return prefix_ + std::string(name); }
    bool has(std::string_view name) const { return file_.has(key(name)); }

    int width(std::string_view name) const { return checked(name, file_.get_u64(key(name))); }
    int width_or(std::string_view name, int otherwise) const { return has(name) ? width(name) : otherwise; }
    float real(std::string_view name) const { return file_.get_f32(key(name)); }
    float real_or(std::string_view name, float otherwise) const {
        return file_.get_f32_or(key(name), otherwise);
    }
    float positive_or(std::string_view name, float otherwise) const {
        const float value = real_or(name, otherwise);
        if (!(value > 0.0f && value <= 1e6f)) reject(name, cat("is ", value, ", not above 0"));
        return value;
    }
    bool flag_or(std::string_view name, bool otherwise) const {
        return file_.get_bool_or(key(name), otherwise);
    }
    std::string_view text_or(std::string_view name, std::string_view otherwise) const {
        return file_.get_string_or(key(name), otherwise);
    }

    // A scalar, or an array with an entry a layer: the one value that all entries other than 0 share.
    int width_per_layer(std::string_view name) const {
        const int n_blocks = width("block_count");
        int found = 0;
        for (uint32_t value : file_.get_u32_per_layer(key(name), static_cast<uint32_t>(n_blocks))) {
            if (value == 0) continue;
            int width = checked(name, value);
            if (found != 0 && found != width)
                fail(Status::unsupported, file_.path(), ": ", key(name), " has layers of different widths (",
                     found, " and ", width, "). This engine takes one width for all layers.");
            found = width;
        }
        return found;
    }

    [[noreturn]] void reject(std::string_view name, const std::string& why) const {
        fail(Status::format, file_.path(), ": ", key(name), " ", why,
             ". The file is damaged or not a Hy3 model.");
    }

  private:
    int checked(std::string_view name, uint64_t value) const {
        if (value == 0 || value > max_width) reject(name, cat("is ", value, ", outside 1..", max_width));
        return static_cast<int>(value);
    }

    const Gguf& file_;
    std::string prefix_;
};

std::string_view architecture(const Gguf& file) {
    std::string_view arch = file.get_string("general.architecture");
    if (arch != "hy_v3" && arch != "hy-v3")
        fail(Status::unsupported, file.path(), ": general.architecture is \"", arch,
             "\", and this engine runs only hy_v3. Use a GGUF of Hy3 or Hy-MT2.");
    if (file.dialect() == Dialect::hy3_original)
        fail(Status::unsupported, file.path(),
             ": the file is in the original hy3 engine's own layout. Rewrite it with `hy3 convert FILE -o "
             "NEW.gguf`, "
             "then use the new file.");
    return arch;
}

bool has_block_tensor(const Gguf& file, int block, std::string_view name) {
    return file.tensor(cat("blk.", block, ".", name)) != nullptr;
}

// block_count includes the MTP layers, and nextn_predict_layers says how many they are; but some files
// declare an MTP layer that was stripped, and a few count only the trunk. The tensors decide.
void count_layers(const Gguf& file, const KeyReader& keys, Config& config) {
    const auto blocks = static_cast<uint64_t>(keys.width("block_count"));
    if (blocks > max_layers) keys.reject("block_count", cat("is ", blocks, ", above ", max_layers));
    const uint64_t mtp = file.get_u64_or(keys.key("nextn_predict_layers"), 0);
    if (mtp >= blocks)
        keys.reject("nextn_predict_layers", cat("is ", mtp, ", not below the block count of ", blocks));
    const int n_blocks = static_cast<int>(blocks);
    int n_layers = n_blocks - static_cast<int>(mtp);
    while (n_layers < n_blocks && has_block_tensor(file, n_layers, "attn_norm.weight") &&
           !has_block_tensor(file, n_layers, "nextn.eh_proj.weight"))
        n_layers++;
    config.n_layers = n_layers;
    const bool has_mtp = n_layers < n_blocks && has_block_tensor(file, n_layers, "nextn.eh_proj.weight");
    config.n_mtp_layers = has_mtp ? 1 : 0;
    if (has_mtp && !has_block_tensor(file, 0, "attn_norm.weight"))
        fail(Status::unsupported, file.path(),
             ": the file holds only the MTP layer of a model. Open the model's main file, and give this one "
             "as "
             "its MTP model.");
    for (int l = 0; l < config.n_blocks(); l++)
        config.sparse.push_back(has_block_tensor(file, l, "ffn_gate_inp.weight"));
}

void read_experts(const Gguf& file, const KeyReader& keys, Config& config) {
    config.n_experts = keys.width("expert_count");
    config.n_experts_used = keys.width("expert_used_count");
    if (config.n_experts_used > config.n_experts)
        keys.reject("expert_used_count",
                    cat("is ", config.n_experts_used, ", more than the ", config.n_experts, " experts"));
    config.expert_ffn = keys.width_per_layer("expert_feed_forward_length");
    if (config.expert_ffn == 0) keys.reject("expert_feed_forward_length", "is 0 in a model with experts");
    const uint64_t shared = file.get_u64_or(keys.key("expert_shared_count"), 0);
    if (shared > 1024) keys.reject("expert_shared_count", cat("is ", shared, ", above 1024"));
    config.n_shared_experts = static_cast<int>(shared);
    if (shared > 0) {
        const uint64_t width = static_cast<uint64_t>(config.expert_ffn) * shared;
        if (width > max_width) keys.reject("expert_shared_count", cat("makes a shared FFN ", width, " wide"));
        config.shared_ffn = keys.width_or("expert_shared_feed_forward_length", static_cast<int>(width));
    }
    config.route_norm = keys.flag_or("expert_weights_norm", true);  // absent: as in all of the family
    config.router_scale = keys.real("expert_weights_scale");
    const uint64_t gating = file.get_u64_or(keys.key("expert_gating_func"), 2);
    if (gating != 1 && gating != 2)
        fail(Status::unsupported, file.path(), ": ", keys.key("expert_gating_func"), " is ", gating,
             ". Known are 1 (softmax) and 2 (sigmoid).");
    config.gating = static_cast<Gating>(gating);
}

RopeConfig read_rope(const KeyReader& keys, int64_t ctx) {
    RopeConfig rope;
    rope.original_ctx = ctx;
    rope.theta = keys.real("rope.freq_base");
    if (!(rope.theta > 1.0f)) keys.reject("rope.freq_base", cat("is ", rope.theta, ", not above 1"));
    const std::string_view type = keys.text_or("rope.scaling.type", "none");
    if (type == "none") return rope;
    if (type != "yarn")
        fail(Status::unsupported, keys.key("rope.scaling.type"), " is \"", type,
             "\". This engine knows none and yarn.");
    rope.factor = keys.real("rope.scaling.factor");
    if (!(rope.factor >= 1.0f && rope.factor <= 1024.0f))
        keys.reject("rope.scaling.factor", cat("is ", rope.factor, ", outside 1..1024"));
    rope.original_ctx = keys.width_or("rope.scaling.original_context_length",
                                      static_cast<int>(std::min<int64_t>(ctx, max_width)));
    rope.beta_fast = keys.positive_or("rope.scaling.yarn_beta_fast", rope.beta_fast);
    rope.beta_slow = keys.positive_or("rope.scaling.yarn_beta_slow", rope.beta_slow);
    // llama.cpp multiplies attn_factor onto YaRN's own factor; ours is the whole product.
    if (keys.has("rope.scaling.attn_factor"))
        rope.attention_factor =
            keys.positive_or("rope.scaling.attn_factor", 1.0f) * (1.0f + 0.1f * std::log(rope.factor));
    return rope;
}

// YaRN's table depends on these in such a way that other values than positive ones make no table at all.
void override_positive(const char* name, float value, float& setting) {
    if (value == 0.0f) return;
    if (!(value > 0.0f && value <= 1e6f))
        fail(Status::invalid_argument, name, " is ", value,
             ". Give a number above 0, or 0 for the file's or the usual one.");
    setting = value;
}

void override_rope(const ConfigOverrides& overrides, Config& config) {
    RopeConfig& rope = config.rope;
    if (overrides.rope_factor != 0.0f && !(overrides.rope_factor >= 1.0f && overrides.rope_factor <= 1024.0f))
        fail(Status::invalid_argument, "rope_factor is ", overrides.rope_factor,
             ". Give a number from 1 (off) to 1024, or 0 for the file's.");
    if (overrides.rope_ctx < 0 || overrides.rope_ctx > static_cast<int64_t>(max_width))
        fail(Status::invalid_argument, "rope_ctx is ", overrides.rope_ctx,
             ". Give the context that the model was trained at, or 0 for the file's.");
    if (overrides.rope_factor != 0.0f && overrides.rope_factor != rope.factor) {
        // A file's attention factor belongs to the file's factor.
        rope.factor = overrides.rope_factor;
        rope.attention_factor = 0.0f;
    }
    if (overrides.rope_ctx > 0) rope.original_ctx = overrides.rope_ctx;
    override_positive("rope_attention_factor", overrides.rope_attention_factor, rope.attention_factor);
    override_positive("rope_beta_fast", overrides.rope_beta_fast, rope.beta_fast);
    override_positive("rope_beta_slow", overrides.rope_beta_slow, rope.beta_slow);
    const bool adjusted = overrides.rope_ctx > 0 || overrides.rope_attention_factor > 0.0f ||
                          overrides.rope_beta_fast > 0.0f || overrides.rope_beta_slow > 0.0f;
    if (adjusted && rope.factor == 1.0f)
        fail(Status::invalid_argument,
             "rope_ctx, rope_attention_factor, rope_beta_fast and rope_beta_slow adjust YaRN, which is off. "
             "Give a rope_factor above 1 with them.");
    if (overrides.rope_factor > 1.0f || overrides.rope_ctx > 0)
        config.ctx = std::max(config.ctx, static_cast<int64_t>(static_cast<double>(rope.original_ctx) *
                                                               static_cast<double>(rope.factor)));
}

void apply_overrides(const ConfigOverrides& overrides, Config& config) {
    if (overrides.experts != 0) {
        if (overrides.experts < 1 || overrides.experts > config.n_experts)
            fail(Status::invalid_argument, "experts is ", overrides.experts, ", and the model has ",
                 config.n_experts, ". Give a number from 1 to that, or 0 for the model's own.");
        config.n_experts_used = overrides.experts;
    }
    override_rope(overrides, config);
}

}  // namespace

Config read_config(const Gguf& file, const ConfigOverrides& overrides) {
    const KeyReader keys(file, architecture(file));
    Config config;
    count_layers(file, keys, config);
    config.hidden = keys.width("embedding_length");
    config.n_heads = keys.width("attention.head_count");
    config.n_kv_heads = keys.width("attention.head_count_kv");
    if (config.n_heads % config.n_kv_heads != 0)
        keys.reject("attention.head_count", cat("is ", config.n_heads, ", not a multiple of the ",
                                                config.n_kv_heads, " key/value heads"));
    config.head_dim = keys.width("attention.key_length");
    if (config.head_dim % 16 != 0 || config.head_dim > 1024)
        fail(Status::unsupported, file.path(), ": ", keys.key("attention.key_length"), " is ",
             config.head_dim, ". This engine takes head sizes that are multiples of 16, up to 1024.");
    if (keys.width_or("attention.value_length", config.head_dim) != config.head_dim)
        fail(Status::unsupported, file.path(), ": ", keys.key("attention.value_length"),
             " differs from attention.key_length. Hy3 has one head size for both.");
    if (static_cast<uint64_t>(config.n_heads) * static_cast<uint64_t>(config.head_dim) > max_width)
        keys.reject("attention.head_count",
                    cat("is ", config.n_heads, ": too many heads of ", config.head_dim));
    config.rms_eps = keys.real("attention.layer_norm_rms_epsilon");
    if (!(config.rms_eps > 0.0f && config.rms_eps < 1.0f))
        keys.reject("attention.layer_norm_rms_epsilon", cat("is ", config.rms_eps, ", outside 0..1"));
    const uint64_t ctx = file.get_u64(keys.key("context_length"));
    if (ctx == 0 || ctx > (1u << 30)) keys.reject("context_length", cat("is ", ctx, ", outside 1..2^30"));
    config.ctx = static_cast<int64_t>(ctx);
    config.rope = read_rope(keys, config.ctx);

    const TensorInfo* embed = file.tensor("token_embd.weight");
    if (embed == nullptr)
        fail(Status::format, file.path(),
             ": the tensor token_embd.weight is missing. The file is incomplete.");
    if (embed->shape.size() != 2 || embed->shape[1] > max_width)
        fail(Status::format, file.path(), ": token_embd.weight has the shape ", embed->shape.text(),
             ", not [", config.hidden, ", vocabulary]. The file is damaged.");
    config.vocab = static_cast<int>(embed->shape[1]);
    config.tied_head = file.tensor("output.weight") == nullptr;

    if (std::find(config.sparse.begin(), config.sparse.end(), true) != config.sparse.end())
        read_experts(file, keys, config);
    if (std::find(config.sparse.begin(), config.sparse.end(), false) != config.sparse.end()) {
        config.ffn = keys.width_per_layer("feed_forward_length");
        if (config.ffn == 0) keys.reject("feed_forward_length", "is 0 in a model with dense layers");
    }
    apply_overrides(overrides, config);
    return config;
}

void add_mtp_file(const Gguf& mtp, const Gguf& main, Config& config) {
    if (config.n_mtp_layers > 0)
        fail(Status::invalid_argument, main.path(), ": the model has an MTP layer of its own. Leave ",
             mtp.path(), " out.");
    const KeyReader keys(mtp, architecture(mtp));
    const auto compare = [&](std::string_view what, uint64_t theirs, int ours) {
        if (theirs != static_cast<uint64_t>(ours))
            fail(Status::unsupported, mtp.path(), ": ", what, " is ", theirs, ", and ", ours, " in ",
                 main.path(), ". Give the MTP layer of the same model.");
    };
    const auto compare_key = [&](std::string_view name, int ours) {
        if (keys.has(name)) compare(keys.key(name), static_cast<uint64_t>(keys.width_per_layer(name)), ours);
    };
    compare_key("embedding_length", config.hidden);
    compare_key("attention.head_count", config.n_heads);
    compare_key("attention.head_count_kv", config.n_kv_heads);
    compare_key("attention.key_length", config.head_dim);
    compare_key("expert_count", config.n_experts);
    compare_key("expert_feed_forward_length", config.expert_ffn);
    compare_key("expert_shared_feed_forward_length", config.shared_ffn);
    if (const TensorInfo* embed = mtp.tensor("token_embd.weight"))
        compare("the vocabulary (rows of token_embd.weight)", embed->shape.rows(), config.vocab);
    if (!has_block_tensor(mtp, config.n_layers, "nextn.eh_proj.weight"))
        fail(Status::unsupported, mtp.path(), ": there is no tensor blk.", config.n_layers,
             ".nextn.eh_proj.weight, the MTP layer of a model with the ", config.n_layers, " layers of ",
             main.path(), ". Give the MTP layer of the same model.");
    config.n_mtp_layers = 1;
    config.sparse.push_back(has_block_tensor(mtp, config.n_layers, "ffn_gate_inp.weight"));
}

}  // namespace hy3
