// Keyed hashes, random bytes and comparisons in constant time, by OpenSSL and getrandom. This file
// knows nothing of what is hashed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// OpenSSL's context of a MAC, so that no user of this header includes OpenSSL's headers.
struct evp_mac_ctx_st;

namespace weft {

inline constexpr std::size_t kMacBytes = 32;

// Returns the HMAC-SHA256 (RFC 2104), kMacBytes bytes. Throws Error when OpenSSL refuses.
std::string hmac_sha256(std::string_view key, std::string_view text);

// Returns the key for a use of a secret that has several uses, kMacBytes bytes. No message that the
// secret itself signs begins like the text that is hashed here.
std::string derive_key(std::string_view secret, std::string_view label);

// Compares in a time that depends only on the sizes.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

// Returns bytes of the kernel's generator. Throws Error when getrandom fails.
std::string random_bytes(std::size_t bytes);

std::string hex(std::string_view bytes);

// Computes SipHash-2-4 with 64 bits, a MAC for datagrams: a twentieth of an HMAC's time. Not
// thread-safe.
class ShortMac {
 public:
  using Key = std::array<std::uint8_t, 16>;
  ShortMac();  // throws Error when OpenSSL has no SipHash
  ~ShortMac();
  ShortMac(const ShortMac&) = delete;
  ShortMac& operator=(const ShortMac&) = delete;
  // Returns false when OpenSSL refuses.
  bool compute(const Key& key, const void* bytes, std::size_t n, std::uint64_t& mac) noexcept;

 private:
  evp_mac_ctx_st* context_;
};

}  // namespace weft
