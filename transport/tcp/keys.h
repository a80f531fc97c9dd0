// The keys of a pair of ranks, which both derive and neither sends. Does not know sockets.
//
// Each key is an HMAC, by the job's key for this transport, of its use, both ranks in the order of
// the direction, and the nonces of their contacts. So it is good for one use, one direction, one
// rail and one connection: a transport draws a nonce for each rail, and a new one in reopen().
#pragma once

#include <string_view>

#include "topo/base/status.h"
#include "transport/tcp/wire.h"

namespace weft::tcp {

enum class Use : std::uint8_t { kHello = 'h', kWelcome = 'w', kCrossed = 'x', kDatagrams = 'd' };

struct End {
  Rank rank;
  const Nonce& nonce;
};
Key derive(std::string_view job_key, Use use, const End& from, const End& to);

// Draws a nonce. Throws Error when the kernel has no random bytes.
Nonce new_nonce();

// Compares in constant time.
bool same_key(const Key& a, const Key& b) noexcept;

}  // namespace weft::tcp
