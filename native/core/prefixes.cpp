#include "core/prefixes.h"

#include <algorithm>
#include <utility>

namespace hy3 {

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

void Prefixes::put(std::unique_ptr<Session> session) {
    const int64_t size = session->position();
    if (size == 0) return;
    for (auto it = entries_.begin(); it != entries_.end();) {
        const int64_t common = common_prefix((*it)->tokens(), session->tokens());
        if (common == size) {
            std::rotate(it, it + 1, entries_.end());
            return;
        }
        it = common == (*it)->position() ? entries_.erase(it) : it + 1;
    }
    entries_.push_back(std::move(session));
}

Session* Prefixes::find(std::span<const int32_t> text) {
    auto best = entries_.end();
    int64_t longest = 0;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        const int64_t common = common_prefix((*it)->tokens(), text);
        if (common <= longest) continue;
        longest = common;
        best = it;
    }
    if (best == entries_.end()) return nullptr;
    std::rotate(best, best + 1, entries_.end());
    return entries_.back().get();
}

std::unique_ptr<Session> Prefixes::take(const Session* session) {
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const auto& entry) { return entry.get() == session; });
    auto out = std::move(*it);
    entries_.erase(it);
    return out;
}

bool Prefixes::evict(const Session* keep) {
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const auto& entry) { return entry.get() != keep; });
    if (it == entries_.end()) return false;
    entries_.erase(it);
    return true;
}

}  // namespace hy3
