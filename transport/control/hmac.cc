// Computes keyed hashes by OpenSSL and takes random bytes from the kernel.
#include "transport/control/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
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

}  // namespace weft
