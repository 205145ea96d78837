// Conversations that ended, kept for those that begin with the same tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/session.h"

namespace hy3 {

// How many tokens two texts begin with alike.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

class Prefixes {
  public:
    // Drops what begins with another one's whole content, or the other way round: the longer one serves both.
    void put(std::unique_ptr<Session> session);

    // The one with the longest common prefix; null if none has a token in common. Counts as a use.
    Session* find(std::span<const int32_t> text);

    // Out of the store, for the caller alone.
    std::unique_ptr<Session> take(const Session* session);

    // Drops the one that was not used for the longest time; false when there is none but `keep`.
    bool evict(const Session* keep);

  private:
    std::vector<std::unique_ptr<Session>> entries_;  // in order of their last use
};

}  // namespace hy3
