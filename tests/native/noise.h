// Random numbers and their comparison, for tests of kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace hy3::test {

inline std::vector<float> noise(int64_t n, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = normal(generator);
    return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace hy3::test
