// Keyed hashes, random bytes and constant-time comparison, based on OpenSSL and getrandom. This
// file is independent of the hashed data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// OpenSSL's MAC context, forward-declared to keep OpenSSL's headers out of this one.
struct evp_mac_ctx_st;

namespace weft {

inline constexpr std::size_t kMacBytes = 32;

// Returns the HMAC-SHA256 (RFC 2104), kMacBytes bytes. Throws Error if OpenSSL fails.
std::string hmac_sha256(std::string_view key, std::string_view text);

// Derives a key of kMacBytes bytes for one use of a secret. Domain-separated: no message whose MAC
// is computed with the secret itself begins like the text hashed here.
std::string derive_key(std::string_view secret, std::string_view label);

// Compares in a time that depends only on the sizes.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

// Returns bytes from the kernel's random generator. Throws Error if getrandom fails.
std::string random_bytes(std::size_t bytes);

std::string hex(std::string_view bytes);

// 64-bit SipHash-2-4, a MAC for datagrams that costs 1/20 of an HMAC. Not thread-safe.
class ShortMac {
 public:
  using Key = std::array<std::uint8_t, 16>;
  ShortMac();  // throws Error when OpenSSL has no SipHash
  ~ShortMac();
  ShortMac(const ShortMac&) = delete;
  ShortMac& operator=(const ShortMac&) = delete;
  // Returns false if OpenSSL fails.
  bool compute(const Key& key, const void* bytes, std::size_t n, std::uint64_t& mac) noexcept;

 private:
  evp_mac_ctx_st* context_;
};

}  // namespace weft
