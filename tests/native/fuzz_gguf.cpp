// Opens the GGUF files that tests/fuzz sends, for a build with sanitizers (fuzz_cases.h).
//
// Stages: "metadata" (failed in it), "tensors" (failed in the tensor table or at placing), "model" (failed in
// what they say), or "ok".
#include <memory>
#include <string>
#include <vector>

#include "core/gguf.h"
#include "core/gguf_reader.h"
#include "fuzz_cases.h"

namespace {

using hy3::Gguf;
using namespace hy3::fuzz;

// Reads what an accessor can reach, so that a wrong bound shows under the sanitizer.
void touch(const Gguf& file) {
    volatile uint64_t seen = 0;
    uint64_t sum = 0;
    for (const auto& [key, value] : file.metadata()) {
        sum += file.find(key) == &value;
        if (const auto* array = std::get_if<hy3::GgufArray>(&value)) {
            for (const std::string_view text : array->strings())
                sum += text.empty() ? 0u : static_cast<uint8_t>(text.back());
            if (hy3::kind_bytes(array->kind) != 0 && array->count != 0) {
                sum += static_cast<uint64_t>(array->number_at(array->count - 1).value_or(0) > 0);
            }
        }
    }
    for (const hy3::TensorInfo& tensor : file.tensors()) {
        sum += tensor.data[0] + tensor.data[tensor.nbytes - 1] + (file.tensor(tensor.name) == &tensor);
    }
    seen = sum;
    (void)seen;
}

std::unique_ptr<hy3_model, Freer> open_model(const std::string& path) {
    hy3_model_options options = hy3_model_default_options();
    options.threads = 1;
    hy3_model* model = nullptr;
    if (hy3_model_open(path.c_str(), &options, &model) != HY3_OK)
        hy3::fail(hy3::Status::format, hy3_last_error());
    return std::unique_ptr<hy3_model, Freer>(model);
}

// Two tokens of a prompt and the logits after them. Errors are fine: NaN among the weights, say.
void compute(hy3_model* model) {
    hy3_session_options options = hy3_session_default_options();
    options.ctx = 8;
    hy3_session* opened = nullptr;
    if (hy3_session_open(model, &options, &opened) != HY3_OK) return;
    const std::unique_ptr<hy3_session, Freer> session(opened);
    hy3_config config;
    hy3_model_config(model, &config);
    std::vector<float> logits(static_cast<size_t>(config.vocab));
    const int32_t tokens[] = {0, config.vocab - 1};
    const hy3_step_item item{session.get(), tokens, 2, HY3_LOGITS_LAST, logits.data()};
    hy3_step(&item, 1, nullptr, nullptr);
}

Outcome run_case(const std::string& path) {
    const char* stage = "metadata";
    Watch watch;
    try {
        hy3::read_part(path, true);
        stage = "tensors";
        touch(*Gguf::open(path));
        stage = "model";
        const auto model = open_model(path);
        const Outcome loaded = watch.outcome("ok", "");
        compute(model.get());
        return loaded;
    } catch (const hy3::Error& error) {
        return watch.outcome(stage, error.what());
    }
}

}  // namespace

int main() {
    return run_cases(run_case);
}
