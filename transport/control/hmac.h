// Keyed hashes, random bytes and comparisons in constant time, by OpenSSL and getrandom. This file
// knows nothing of what is hashed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

inline constexpr std::size_t kMacBytes = 32;

// Returns the HMAC-SHA256 (RFC 2104), kMacBytes bytes. Throws Error when OpenSSL refuses.
std::string hmac_sha256(std::string_view key, std::string_view text);

// Compares in a time that depends only on the sizes.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

// Returns bytes of the kernel's generator. Throws Error when getrandom fails.
std::string random_bytes(std::size_t bytes);

std::string hex(std::string_view bytes);

}  // namespace weft
