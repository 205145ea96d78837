#include "core/session_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/fingerprint.h"
#include "core/mapped_file.h"
#include "core/output_file.h"
#include "core/session.h"
#include "core/xxhash.h"

namespace hy3 {
namespace {

constexpr size_t poll_bytes = 1 << 20;   // read or written between two looks at whether to stop
constexpr size_t flush_bytes = 8 << 20;  // a tenth of a second, on a slow disk

// act(at, n) for all of `size` bytes, with a look at `abort` before each piece.
template <typename Act>
void in_pieces(size_t size, AbortCheck& abort, const Act& act) {
    for (size_t at = 0; at < size; at += poll_bytes) {
        if (abort()) fail(Status::aborted, "Saving or loading the session was stopped.");
        act(at, std::min(poll_bytes, size - at));
    }
}

const char* name_of(uint32_t kv_type) {
    switch (static_cast<KvType>(kv_type)) {
        case KvType::f32:
            return "f32";
        case KvType::f16:
            return "f16";
        case KvType::q8:
            return "q8";
        case KvType::q4:
            return "q4";
    }
    return "unknown";
}

// The header of a session of these options with nothing in it.
SessionFileHeader header_for(const Model& model, const SessionOptions& options, const KvLayout& layout,
                             AbortCheck& abort) {
    SessionFileHeader h{};
    std::memcpy(h.magic, session_file_magic, sizeof(h.magic));
    h.version = session_file_version;
    h.kv_type = static_cast<uint32_t>(layout.type);
    h.n_layers = static_cast<uint32_t>(layout.n_layers);
    h.n_kv_heads = static_cast<uint32_t>(layout.n_kv_heads);
    h.head_dim = static_cast<uint32_t>(layout.head_dim);
    h.page_size = kPageSize;
    h.mtp = options.mtp ? 1 : 0;
    model.backend_name().copy(h.backend, sizeof(h.backend) - 1);
    h.fingerprint = fingerprint(model, abort);
    h.page_bytes = layout.page_bytes();
    return h;
}

uint64_t pages_of(uint64_t n_tokens) {
    return n_tokens / kPageSize + (n_tokens % kPageSize != 0);
}

// False when it does not fit into 64 bits.
bool size_of(const SessionFileHeader& h, int hidden, uint64_t& out) {
    const std::array<std::array<uint64_t, 2>, 5> parts{
        {{h.n_jumps, 2 * sizeof(uint64_t)},
         {h.n_tokens, sizeof(int32_t)},
         {h.n_states, sizeof(float) * static_cast<uint64_t>(hidden)},
         {h.n_extra, 1},
         {pages_of(h.n_tokens), h.page_bytes}}};
    out = sizeof(h) + sizeof(uint64_t);
    for (const auto& [count, bytes] : parts) {
        uint64_t size;
        if (__builtin_mul_overflow(count, bytes, &size) || __builtin_add_overflow(out, size, &out))
            return false;
    }
    return true;
}

// The file, read from front to end within bounds that size_of() has established.
class Reader {
  public:
    explicit Reader(const uint8_t* at) : at_(at) {}

    const uint8_t* take(size_t size) {
        const uint8_t* taken = at_;
        at_ += size;
        return taken;
    }
    template <typename T>
    std::vector<T> array(size_t n) {
        std::vector<T> out(n);
        if (n > 0) std::memcpy(out.data(), take(n * sizeof(T)), n * sizeof(T));
        return out;
    }

  private:
    const uint8_t* at_;
};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
    fail(Status::format, path, ": ", what, ". The file is incomplete or damaged; it cannot be used.");
}

// That the file is a saved session at all, and of this session's model and kind.
SessionFileHeader checked_header(const MappedFile& file, const SessionFileHeader& ours, int hidden,
                                 int64_t ctx) {
    const std::string& path = file.path();
    SessionFileHeader h;
    if (file.size() < sizeof(h.magic) || std::memcmp(file.data(), session_file_magic, sizeof(h.magic)) != 0)
        fail(Status::format, path, ": is not a saved session. Give a file that a session was saved to.");
    if (file.size() < sizeof(h)) damaged(path, cat("ends within its header, after ", file.size(), " bytes"));
    std::memcpy(&h, file.data(), sizeof(h));
    if (h.version != ours.version)
        fail(Status::unsupported, path, ": is a saved session of version ", h.version,
             ", and this program reads version ", ours.version, ". Use the program that wrote it.");
    const auto differs = [&](const auto&... what) { fail(Status::unsupported, path, ": ", what...); };
    if (h.fingerprint != ours.fingerprint)
        differs(
            "was saved with another model, or other --experts or --rope options. Use the same ones, or "
            "another file.");
    if (h.kv_type != ours.kv_type)
        differs("was saved with KV type ", name_of(h.kv_type), ", and this session has ",
                name_of(ours.kv_type), ". Use the same KV type, or another file.");
    if (h.mtp != ours.mtp)
        differs("was saved ", h.mtp != 0 ? "with" : "without", " the MTP layer's cache, and this session is ",
                ours.mtp != 0 ? "with" : "without", " it. Use the same, or another file.");
    if (std::memcmp(h.backend, ours.backend, sizeof(h.backend)) != 0)
        differs("was saved on another backend, and this one is ", ours.backend,
                ", whose keys and values differ in their last bits. Use the same backend, or another file.");
    if (h.n_layers != ours.n_layers || h.n_kv_heads != ours.n_kv_heads || h.head_dim != ours.head_dim ||
        h.page_size != ours.page_size || h.page_bytes != ours.page_bytes)
        differs(
            "has its keys and values laid out differently. Use the program that wrote it, or another file.");
    uint64_t size;
    if (!size_of(h, hidden, size) || size != file.size())
        damaged(path, cat("has ", file.size(), " bytes, which is not what its header speaks of"));
    if (h.n_tokens > static_cast<uint64_t>(ctx))
        fail(Status::context_full, path, ": holds ", h.n_tokens, " tokens, and the context ", ctx,
             ". Use a larger context.");
    return h;
}

void verify_checksum(const MappedFile& file, AbortCheck& abort) {
    const uint64_t end = file.size() - sizeof(uint64_t);
    Xxh64 hash;
    in_pieces(end, abort, [&](size_t at, size_t n) { hash.update(file.data() + at, n); });
    uint64_t expected;
    std::memcpy(&expected, file.data() + end, sizeof(expected));
    if (hash.digest() != expected) damaged(file.path(), "its checksum does not match its content");
}

void check_tokens(const std::string& path, std::span<const int32_t> tokens, int vocab) {
    for (const int32_t token : tokens)
        if (token < 0 || token >= vocab)
            damaged(path, cat("has the token ", token, ", outside the vocabulary of ", vocab));
}

}  // namespace

void Session::save(const std::string& path, std::string_view extra, AbortCheck& abort) const {
    const KvLayout& layout = cache_.layout();
    SessionFileHeader header = header_for(*model_, options_, layout, abort);
    header.n_states = static_cast<uint32_t>(kept());
    header.n_tokens = tokens_.size();
    header.n_jumps = jumps_.size();
    header.n_extra = extra.size();

    OutputFile file(path);
    Xxh64 hash;
    size_t unflushed = 0;
    const auto put = [&](const void* data, size_t size) {
        in_pieces(size, abort, [&](size_t at, size_t n) {
            hash.update(static_cast<const char*>(data) + at, n);
            file.write(static_cast<const char*>(data) + at, n);
            unflushed += n;
            if (unflushed < flush_bytes) return;
            file.flush();
            unflushed = 0;
        });
    };
    put(&header, sizeof(header));
    for (const Jump& jump : jumps_) {
        const std::array<uint64_t, 2> entry{static_cast<uint64_t>(jump.at), static_cast<uint64_t>(jump.by)};
        put(entry.data(), sizeof(entry));
    }
    put(tokens_.data(), tokens_.size() * sizeof(int32_t));
    put(states_.data(), states_.size() * sizeof(float));
    put(extra.data(), extra.size());
    std::vector<std::byte> page(layout.page_bytes());
    for (int64_t first = 0; first < position(); first += kPageSize) {
        const std::byte* from = cache_.pages()[static_cast<size_t>(first / kPageSize)];
        in_pieces(page.size(), abort, [&](size_t at, size_t size) {
            model_->backend().download(page.data() + at, from + at, size);
        });
        for (int layer = 0; layer < layout.n_layers; layer++) {
            const bool is_mtp = options_.mtp && layer == layout.n_layers - 1;
            const int64_t written = position() - (is_mtp ? std::max<int64_t>(kept(), 1) : 0);
            const int64_t in_use = std::max<int64_t>(written - first, 0);
            if (in_use < kPageSize) layout.clear_from(in_use, layer, page.data());
        }
        put(page.data(), page.size());
    }
    const uint64_t checksum = hash.digest();
    file.write(&checksum, sizeof(checksum));
    file.commit();
}

std::string Session::load(const std::string& path, AbortCheck& abort) {
    const KvLayout& layout = cache_.layout();
    const auto file = MappedFile::open(path);
    const SessionFileHeader header = checked_header(*file, header_for(*model_, options_, layout, abort),
                                                    model_->config().hidden, options_.ctx);
    // More than the last state are kept for rows of the MTP layer that are still to be written.
    if (header.n_states > std::min<uint64_t>(header.n_tokens, options_.mtp ? header.n_tokens : 1))
        damaged(path, cat("has ", header.n_states, " states"));
    verify_checksum(*file, abort);

    Reader reader(file->data() + sizeof(header));
    const auto n = static_cast<int64_t>(header.n_tokens);
    std::vector<Jump> jumps;
    for (uint64_t i = 0; i < header.n_jumps; i++) {
        const auto entry = reader.array<int64_t>(2);
        const Jump before = jumps.empty() ? Jump{0, 0} : jumps.back();
        if (entry[0] < before.at || entry[0] > n || entry[1] <= before.by || entry[1] > max_rope_position)
            damaged(path, cat("has a jump of ", entry[1], " at token ", entry[0]));
        if (entry[1] > max_rope_position - options_.ctx)
            fail(Status::context_full, path, ": has a jump of ", entry[1],
                 " positions, too long for a context of ", options_.ctx, ". Use a smaller context.");
        jumps.push_back({entry[0], entry[1]});
    }
    auto tokens = reader.array<int32_t>(header.n_tokens);
    check_tokens(path, tokens, model_->config().vocab);
    auto states = reader.array<float>(header.n_states * static_cast<size_t>(model_->config().hidden));
    const auto* extra_at = reinterpret_cast<const char*>(reader.take(header.n_extra));
    std::string extra(extra_at, header.n_extra);

    KvCache cache(model_->backend(), layout);
    cache.prepare(0, n);
    for (std::byte* page : cache.pages()) {
        const uint8_t* from = reader.take(layout.page_bytes());
        in_pieces(layout.page_bytes(), abort,
                  [&](size_t at, size_t size) { model_->backend().upload(page + at, from + at, size); });
    }
    tokens_.swap(tokens);
    jumps_.swap(jumps);
    states_.swap(states);
    guesses_.clear();
    mtp_token_ = -1;
    revision_++;
    cache_.swap(cache);
    return extra;
}

}  // namespace hy3
