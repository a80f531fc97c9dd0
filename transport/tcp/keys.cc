// Derives keys with HMAC-SHA256 and generates nonces.
#include "transport/tcp/keys.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "transport/control/hmac.h"

namespace weft::tcp {

Key derive(std::string_view job_key, Use use, const End& from, const End& to) {
  std::string text(1, static_cast<char>(use));
  for (const End& end : {from, to}) {
    text.append(reinterpret_cast<const char*>(&end.rank), sizeof end.rank);
    text.append(reinterpret_cast<const char*>(end.nonce.data()), end.nonce.size());
  }
  Key key;
  std::memcpy(key.data(), hmac_sha256(job_key, text).data(), key.size());
  return key;
}

Nonce new_nonce() {
  Nonce nonce;
  std::memcpy(nonce.data(), random_bytes(nonce.size()).data(), nonce.size());
  return nonce;
}

bool same_key(const Key& a, const Key& b) noexcept {
  return equal_in_constant_time({reinterpret_cast<const char*>(a.data()), a.size()},
                                {reinterpret_cast<const char*>(b.data()), b.size()});
}

}  // namespace weft::tcp
