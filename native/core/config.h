// What a hy_v3 model is: every shape and constant that the forward pass needs, read from a GGUF's keys and
// checked. Nothing here is a compile-time constant of a particular model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hy3 {

class Gguf;

enum class Gating { softmax = 1, sigmoid = 2 };  // GGUF's expert_gating_func

// Rotary position embedding, with YaRN (Peng et al. 2023) when factor > 1.
struct RopeConfig {
    float theta = 10000.0f;
    float factor = 1.0f;            // 1: the plain table
    int64_t original_ctx = 0;       // context the model was trained at, which YaRN stretches
    float attention_factor = 0.0f;  // 0: derive it from factor, as transformers does
    float beta_fast = 32.0f;
    float beta_slow = 1.0f;
};

struct Config {
    int n_layers = 0;      // decoder layers of the trunk, MTP layers not counted
    int n_mtp_layers = 0;  // MTP layers whose tensors the file has (0 or 1)
    int hidden = 0;
    int n_heads = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    int ffn = 0;             // width of a dense layer's FFN; 0 if there is none
    int n_experts = 0;       // 0 if no layer is sparse
    int n_experts_used = 0;  // top-k
    int n_shared_experts = 0;
    int expert_ffn = 0;
    int shared_ffn = 0;  // width of the shared expert's FFN: all shared experts as one
    int vocab = 0;
    int64_t ctx = 0;
    float rms_eps = 1e-5f;
    bool route_norm = true;
    float router_scale = 1.0f;
    Gating gating = Gating::sigmoid;
    bool tied_head = false;
    std::vector<bool> sparse;  // per layer (n_layers + n_mtp_layers): experts or a dense FFN
    RopeConfig rope;

    int n_blocks() const { return n_layers + n_mtp_layers; }
    int q_width() const { return n_heads * head_dim; }
    int kv_width() const { return n_kv_heads * head_dim; }
};

// What the caller overrides; zero leaves the file's value.
struct ConfigOverrides {
    int experts = 0;           // number of experts used per token
    float rope_factor = 0.0f;  // 1 turns YaRN off, more turns it on
    int64_t rope_ctx = 0;      // the rest is YaRN's, as in RopeConfig
    float rope_attention_factor = 0.0f;
    float rope_beta_fast = 0.0f;
    float rope_beta_slow = 0.0f;
};

// Reads and checks the `hy_v3.*` keys, and finds out from the tensors present which layers are sparse and
// whether the MTP layer is there. Throws Error(format) or Error(unsupported) naming the key.
Config read_config(const Gguf& file, const ConfigOverrides& overrides);

// Adds the MTP layer that is in a file of its own to the configuration of `main`. Throws Error(unsupported)
// naming what differs when the two are not of one model, Error(invalid_argument) when `main` has one already.
void add_mtp_file(const Gguf& mtp, const Gguf& main, Config& config);

}  // namespace hy3
