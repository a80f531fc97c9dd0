// Computes keyed hashes with OpenSSL; gets random bytes from the kernel.
#include "transport/control/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "topo/base/status.h"

namespace weft {

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string mac(kMacBytes, '\0');
  unsigned int length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(mac.data()), &length);
  if (done == nullptr || length != kMacBytes) {
    throw Error("OpenSSL cannot compute HMAC-SHA256: check its configuration (OPENSSL_CONF)");
  }
  return mac;
}

std::string derive_key(std::string_view secret, std::string_view label) {
  return hmac_sha256(secret, "weft key for " + std::string(label));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t bytes) {
  std::string random(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = getrandom(random.data() + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(std::string("getrandom failed: ") + std::strerror(errno));
    have += static_cast<std::size_t>(got);
  }
  return random;
}

std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

ShortMac::ShortMac() {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_SIPHASH, nullptr);
  context_ = mac ? EVP_MAC_CTX_new(mac) : nullptr;
  EVP_MAC_free(mac);
  std::size_t size = sizeof(std::uint64_t);
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                                   OSSL_PARAM_construct_end()};
  if (context_ && EVP_MAC_CTX_set_params(context_, parameters)) return;
  EVP_MAC_CTX_free(context_);
  throw Error("OpenSSL has no SipHash: check its configuration (OPENSSL_CONF)");
}

ShortMac::~ShortMac() { EVP_MAC_CTX_free(context_); }

bool ShortMac::compute(const Key& key, const void* bytes, std::size_t n,
                       std::uint64_t& mac) noexcept {
  std::size_t length = 0;
  return EVP_MAC_init(context_, key.data(), key.size(), nullptr) &&
         EVP_MAC_update(context_, static_cast<const unsigned char*>(bytes), n) &&
         EVP_MAC_final(context_, reinterpret_cast<unsigned char*>(&mac), &length, sizeof mac) &&
         length == sizeof mac;
}

}  // namespace weft
