#include "core/kv_cache.h"

#include <algorithm>
#include <utility>

#include "core/backend.h"

namespace hy3 {

void KvLayout::clear_from(int64_t first, int layer, std::byte* page) const {
    const size_t element = std::max<size_t>(element_bits() / 8, 1);  // no byte belongs to two positions
    const size_t scale = type == KvType::q8 ? sizeof(float) : sizeof(uint16_t);
    for (int head = 0; head < n_kv_heads; head++) {
        std::byte* const keys = page + key_offset(layer, head);
        std::byte* const values = page + value_offset(layer, head);
        for (auto p = static_cast<size_t>(first); p < kPageSize; p++) {
            for (size_t d = 0; d < columns(); d++) {
                std::fill_n(keys + key_at(p, d), element, std::byte{0});
                std::fill_n(values + value_at(p, d), element, std::byte{0});
                if (scales_bytes() == 0) continue;
                std::fill_n(keys + scale_at(p, d), scale, std::byte{0});
                std::fill_n(values + scale_at(p, d), scale, std::byte{0});
            }
        }
    }
}

KvPage::KvPage(Backend& backend, size_t bytes, std::shared_ptr<KvUse> use)
    : backend_(backend), data_(backend.allocate(bytes)), use_(std::move(use)) {
    if (use_) use_->pages++;
}

KvPage::~KvPage() {
    if (use_) use_->pages--;
    backend_.release(data_);
}

void KvCache::prepare(int64_t first, int64_t count) {
    if (count <= 0) return;
    const auto begin = static_cast<size_t>(first / kPageSize);
    const auto end = static_cast<size_t>((first + count - 1) / kPageSize) + 1;
    const auto ours = [&](size_t i) { return i < pages_.size() && pages_[i].use_count() == 1; };
    size_t missing = begin;
    while (missing < end && ours(missing)) missing++;
    if (missing == end) return;  // the usual case while decoding

    auto pages = pages_;
    for (size_t i = missing; i < end; i++) {
        if (i < pages.size() && pages[i].use_count() <= 2) continue;  // ours alone: here and in the copy
        auto page = std::make_shared<KvPage>(backend_, layout_.page_bytes(), use_);
        if (i < pages.size()) {
            backend_.copy(page->data(), pages[i]->data(), layout_.page_bytes());
            pages[i] = std::move(page);
        } else {
            pages.push_back(std::move(page));
        }
    }
    std::vector<std::byte*> addresses;
    addresses.reserve(pages.size());
    for (const auto& page : pages) addresses.push_back(page->data());
    pages_ = std::move(pages);
    addresses_ = std::move(addresses);
}

void KvCache::shrink(int64_t size) {
    const auto keep = static_cast<size_t>(whole_pages(size));
    if (keep >= pages_.size()) return;
    pages_.resize(keep);
    addresses_.resize(keep);
}

}  // namespace hy3
