// Keyed hashes, random bytes and comparisons that take the same time whatever they compare.
// Thin names over OpenSSL and getrandom; knows nothing of what is hashed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

inline constexpr std::size_t kMacBytes = 32;

// HMAC-SHA256 (RFC 2104): kMacBytes bytes. Throws Error when the library refuses.
std::string hmac_sha256(std::string_view key, std::string_view text);

// Compares in a time that depends on the sizes only.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

// From the kernel's generator. Throws Error when there is none.
std::string random_bytes(std::size_t bytes);

std::string hex(std::string_view bytes);

}  // namespace weft
