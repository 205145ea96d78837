// The reference backend: plain float32 loops that can be checked against the formulas line by line. It
// decides what is right; the other backends are compared with it. No threads, no vectors, no shortcuts.
#pragma once

#include <memory>

#include "core/backend.h"

namespace hy3 {

std::unique_ptr<Backend> make_reference_backend(const Config& config);

}  // namespace hy3
