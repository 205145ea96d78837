#include "core/model.h"

#include <chrono>

#include "core/error.h"

namespace hy3 {
namespace {

int32_t token_key(const Gguf& file, const char* key) {
    if (!file.has(key)) return -1;
    const uint32_t id = file.get_u32(key);
    return id > 0x7fffffff ? -1 : static_cast<int32_t>(id);  // some writers store -1 for "none"
}

std::shared_ptr<const Gguf> open_file(const std::string& path, const ModelOptions& options) {
    auto file = Gguf::open(path, options.use_mmap);
    if (options.mlock && !file->lock())
        fail(Status::io, path, ": the system refuses to pin ", file->file_bytes(),
             " bytes in memory. Raise the limit (ulimit -l) or leave mlock out.");
    return file;
}

Config joint_config(const Gguf& file, const Gguf* mtp, const ConfigOverrides& overrides) {
    Config config = read_config(file, overrides);
    if (mtp != nullptr) add_mtp_file(*mtp, file, config);
    return config;
}

// The counts are compared first: tables are not built for a vocabulary that the model cannot have.
std::shared_ptr<const Tokenizer> checked_tokenizer(const Gguf& file, const Config& config) {
    const uint64_t entries = file.get_array("tokenizer.ggml.tokens").count;
    if (entries != static_cast<uint64_t>(config.vocab))
        fail(Status::format, file.path(), ": tokenizer.ggml.tokens has ", entries,
             " entries and token_embd.weight ", config.vocab, " rows. The file is damaged.");
    return read_tokenizer(file);
}

}  // namespace

std::shared_ptr<const Tokenizer> read_tokenizer(const Gguf& file) {
    const std::string_view kind = file.get_string("tokenizer.ggml.model");
    if (kind != "gpt2")
        fail(Status::unsupported, file.path(), ": tokenizer.ggml.model is \"", kind,
             "\". Hy3's tokenizer is byte-level BPE, \"gpt2\".");
    TokenizerSpec spec;
    spec.file = file.path();
    spec.pre = file.get_string("tokenizer.ggml.pre");
    spec.tokens = file.get_strings("tokenizer.ggml.tokens");
    if (file.has("tokenizer.ggml.token_type")) spec.types = file.get_i32s("tokenizer.ggml.token_type");
    spec.merges = file.get_strings("tokenizer.ggml.merges");
    spec.bos = token_key(file, "tokenizer.ggml.bos_token_id");
    spec.eos = token_key(file, "tokenizer.ggml.eos_token_id");
    spec.eot = token_key(file, "tokenizer.ggml.eot_token_id");
    spec.eod = token_key(file, "tokenizer.ggml.eod_token_id");
    spec.pad = token_key(file, "tokenizer.ggml.padding_token_id");
    if (file.has("tokenizer.ggml.eos_token_ids"))
        spec.more_eos = file.get_i32s("tokenizer.ggml.eos_token_ids");
    return std::make_shared<const Tokenizer>(spec);
}

Model::Model(const std::string& path, const ModelOptions& options)
    : file_(open_file(path, options)),
      mtp_file_(options.mtp_model ? open_file(*options.mtp_model, options) : nullptr),
      config_(joint_config(*file_, mtp_file_.get(), options.overrides)),
      tokenizer_(checked_tokenizer(*file_, config_)),
      weights_(load_weights(file_, mtp_file_, config_)),
      backend_(make_backend(options.backend, config_, options.threads)),
      backend_name_(backend_->name()),
      forward_(*backend_, config_, weights_) {}

void Model::observe(ActivationObserver* observer) {
    const std::lock_guard lock(mutex_);
    if (observer != nullptr && backend_->observer() != nullptr)
        fail(Status::invalid_argument,
             "The model's activations are being observed already. End the other collection first.");
    backend_->set_observer(observer);
}

Model::Turn::Turn(Model& model, AbortCheck& abort) : model_(model), lock_(model.mutex_, std::defer_lock) {
    while (!lock_.try_lock_for(std::chrono::milliseconds(20)))
        if (abort()) fail(Status::aborted, "The step was stopped.");
    model_.backend_->set_abort(&abort);
}

Model::Turn::~Turn() {
    model_.backend_->set_abort(nullptr);
}

}  // namespace hy3
