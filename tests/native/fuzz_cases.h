// What the fuzz targets share: cases from standard input, an answer for each, and every allocation counted.
//
// Standard input: for each case a u64 length and that many bytes. Standard output, for each, a line
//   STAGE PEAK LARGEST MESSAGE
// STAGE: how far it came; PEAK: most bytes allocated at once; LARGEST: the largest single allocation;
// MESSAGE: the error's, or empty.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "hy3.h"

namespace hy3::fuzz {

struct Outcome {
    const char* stage;
    size_t peak, largest;
    std::string message;
};

// Counts what is allocated while it exists; one at a time.
class Watch {
  public:
    Watch();
    Outcome outcome(const char* stage, const std::string& message) const;

  private:
    size_t before_;
};

// Answers cases, each a file in memory at `path`, until there are no more. Returns main()'s result.
int run_cases(const std::function<Outcome(const std::string& path)>& run_case);

struct Freer {
    void operator()(hy3_model* model) const { hy3_model_free(model); }
    void operator()(hy3_session* session) const { hy3_session_free(session); }
};

}  // namespace hy3::fuzz
