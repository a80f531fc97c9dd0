// The keys of a pair of ranks. Both ranks derive the keys, and neither sends them.
//
// Each key is an HMAC with the job's key for this transport. The input consists of the key's use,
// both ranks in the order of the direction, and the nonces of their contacts. Thus a key is valid
// for one use, direction, rail and connection: a transport generates a nonce for each rail, and a
// new nonce in reopen().
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

// Generates a random nonce. Throws Error if getrandom fails.
Nonce new_nonce();

// Compares in constant time.
bool same_key(const Key& a, const Key& b) noexcept;

}  // namespace weft::tcp
