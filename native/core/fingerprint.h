// What tells whether a saved session belongs to a model.
#pragma once

#include <cstdint>

namespace hy3 {

class AbortCheck;
class Model;

// A hash over all that the keys and values of a text depend on: the configuration with what the caller
// overrides, RoPE's table, each tensor's name, type and shape, and some of its bytes (reading all of a large
// model would take minutes; from a cold disk these take seconds).
uint64_t fingerprint(const Model& model, AbortCheck& abort);

}  // namespace hy3
