// Stores the messages of the simulated fabric: pools of messages and their bytes, and the match
// table of messages with only one side posted.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/sim/state.h"

namespace weft {

using M = SimMessage;

std::size_t SimFabric::State::bucket(Rank src, Rank dst, std::uint64_t tag) const {
  return sim_mix(sim_key(src, dst) ^ sim_mix(tag + 0x9e3779b97f4a7c15u)) & (table.size() - 1);
}

// Returns the oldest message of a key whose other side is not posted. Buckets are sorted newest
// first.
std::uint32_t SimFabric::State::find(Rank src, Rank dst, std::uint64_t tag, M::Flag posted) const {
  std::uint32_t found = kNone;
  for (std::uint32_t m = table[bucket(src, dst, tag)]; m != kNone; m = messages[m].next) {
    const M& msg = messages[m];
    if (msg.tag == tag && msg.src == src && msg.dst == dst && msg.has(posted)) found = m;
  }
  return found;
}

// Considers messages that have arrived, or that would arrive if a receive were posted.
Rank SimFabric::State::unexpected(Rank rank, Rank peer, std::uint64_t tag, std::uint64_t mask,
                                  Head& theirs) const {
  for (const M& msg : messages) {
    if (!msg.has(M::kWaiting) || !msg.has(M::kSendPosted) || msg.head.sign == 0) continue;
    if ((peer != kNoRank && msg.src != peer) || msg.dst != rank || (msg.tag & mask) != (tag & mask))
      continue;
    if (!msg.has(M::kLanded) && msg.bytes < opt.eager_below) continue;
    theirs = msg.head;
    return msg.src;
  }
  return kNoRank;
}

void SimFabric::State::insert(std::uint32_t m) {
  if (waiting == table.size()) grow();
  M& msg = messages[m];
  std::uint32_t& head = table[bucket(msg.src, msg.dst, msg.tag)];
  msg.next = head;
  msg.set(M::kWaiting);
  head = m;
  ++waiting;
}

void SimFabric::State::remove(std::uint32_t m) {
  std::uint32_t* at = &table[bucket(messages[m].src, messages[m].dst, messages[m].tag)];
  while (*at != m) at = &messages[*at].next;
  *at = messages[m].next;
  messages[m].clear(M::kWaiting);
  --waiting;
}

void SimFabric::State::grow() {
  const std::vector<std::uint32_t> old =
      std::exchange(table, std::vector<std::uint32_t>(table.size() * 2, kNone));
  std::vector<std::uint32_t> chain;
  for (std::uint32_t m : old) {
    chain.clear();
    for (; m != kNone; m = messages[m].next) chain.push_back(m);
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {  // oldest first keeps the order
      M& msg = messages[*it];
      std::uint32_t& head = table[bucket(msg.src, msg.dst, msg.tag)];
      msg.next = head;
      head = *it;
    }
  }
}

std::uint32_t SimFabric::State::take_message() {
  std::uint32_t m = free_message;
  if (m == kNone) {
    m = static_cast<std::uint32_t>(messages.size());
    messages.emplace_back();
    messages[m].generation = 1;
  } else {
    free_message = messages[m].next;
  }
  messages[m].buffer = kNone;
  return m;
}

void SimFabric::State::drop_if_over(std::uint32_t m) {
  M& msg = messages[m];
  if (msg.events > 0 || msg.has(M::kSendOpen | M::kRecvOpen | M::kWaiting | M::kLent)) return;
  if (msg.buffer != kNone) {
    // Overwrites the bytes, to expose reads of a released view.
    std::ranges::fill(buffers[msg.buffer], std::byte{0xdd});
    free_buffers.push_back(msg.buffer);
  }
  const std::uint32_t generation = msg.generation + 1;
  msg = M{};
  msg.generation = generation == 0 ? 1 : generation;
  msg.next = free_message;
  free_message = m;
}

void SimFabric::State::take_bytes(std::uint32_t m) {
  M& msg = messages[m];
  if (free_buffers.empty()) {
    free_buffers.push_back(static_cast<std::uint32_t>(buffers.size()));
    buffers.emplace_back();
  }
  msg.buffer = free_buffers.back();
  free_buffers.pop_back();
  std::vector<std::byte>& bytes = buffers[msg.buffer];
  bytes.reserve(1);  // an empty view is not null either
  bytes.resize(msg.bytes);
  if (msg.bytes > 0) std::memcpy(bytes.data(), msg.from, msg.bytes);
}

}  // namespace weft
