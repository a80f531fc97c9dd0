// Shared memory that plays a peer of the shm transport, for tests of its input.
#pragma once

#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/fakes/forged_job.h"
#include "transport/memory/shared_region.h"
#include "transport/shm/layout.h"
#include "transport/shm/shm.h"

namespace weft::testing {

// Ranks of one machine.
inline Topology one_machine(int ranks) {
  std::vector<Place> places(static_cast<std::size_t>(ranks));
  for (Place& place : places) place.host = place.machine = "here";
  return Topology(places);
}

// Rank 0's transport; ranks 1 and up are played by the test: arenas, and views of rank 0's arena.
class RawShm {
 public:
  // Modifies the description that a rank sends of its memory.
  using Change = std::function<void(Rank, shm::Hello&)>;
  explicit RawShm(int ranks, const Change& change = nullptr,
                  std::size_t at_once = shm::kMappedAtOnce)
      : layout_(ranks), sent_(static_cast<std::size_t>(ranks)) {
    std::vector<Rank> members;
    for (Rank r = 0; r < ranks; ++r) {
      members.push_back(r);
      arenas.push_back(
          SharedRegion::create(layout_.bytes, "raw-arena", SharedRegion::Others::kWrite));
    }
    ForgedJob job(ranks, [&](Rank r, std::string right) {
      shm::Hello hello;
      std::memcpy(&hello, right.data(), sizeof hello);
      hello.arena_fd = arenas[static_cast<std::size_t>(r)].fd();
      if (change) change(r, hello);
      std::memcpy(right.data(), &hello, sizeof hello);
      return right;
    });
    transport = make_shm_transport(job, one_machine(ranks), members, at_once);
    std::memcpy(&hello, job.said.data(), sizeof hello);
    root_ =
        SharedRegion::open(getpid(), hello.arena_fd, layout_.bytes, SharedRegion::Others::kWrite);
  }

  // The rank's next cell in rank 0's arena. publish() hands it over.
  shm::Cell& cell(Rank rank) {
    auto* all = reinterpret_cast<shm::Cell*>(root_.data() + layout_.rings);
    return all[static_cast<std::uint32_t>(rank) * shm::kRing + sent(rank) % shm::kRing];
  }
  void publish(Rank rank) {
    shm::Cell& c = cell(rank);
    if (sent(rank) == 0) call(rank);
    c.seq.store(++sent(rank), std::memory_order_release);
  }
  shm::Callers& callers() {
    return *reinterpret_cast<shm::Callers*>(root_.data() + layout_.callers);
  }
  // Marks the rank, so that rank 0 polls its messages.
  void call(Rank rank) {
    callers().called(static_cast<std::size_t>(rank)).store(1);
    ++callers().count;
  }
  void write(Rank rank, shm::Kind kind, std::uint64_t tag, std::uint64_t bytes,
             std::uint64_t address = 0, std::uint64_t serial = 0, std::uint32_t index = 0) {
    shm::Cell& c = cell(rank);
    c.kind = kind;
    c.tag = tag;
    c.sign = 0;
    c.inline_bytes = static_cast<std::uint8_t>(bytes);
    if (kind != shm::Kind::kInline) c.at = {bytes, address, serial, index};
    publish(rank);
  }
  void say(Rank rank, std::uint64_t tag, std::string_view text) {
    std::memcpy(cell(rank).data, text.data(), text.size());
    write(rank, shm::Kind::kInline, tag, text.size());
  }

  void post(Transfer::Kind kind, Rank peer, std::uint64_t tag, void* data, std::size_t bytes,
            std::uint64_t id) {
    const Transfer t{
        .kind = kind, .peer = peer, .tag = tag, .data = data, .bytes = bytes, .id = id};
    transport->post({&t, 1});
  }
  void poll(int times = 4) {
    for (int i = 0; i < times; ++i) {
      Completion out[8];
      const std::size_t n = transport->poll(out);
      completions.insert(completions.end(), out, out + n);
    }
  }
  const shm::Layout& layout() const { return layout_; }

  std::vector<SharedRegion> arenas;
  std::unique_ptr<Transport> transport;
  shm::Hello hello;  // of rank 0
  std::vector<Completion> completions;

 private:
  std::uint32_t& sent(Rank rank) { return sent_[static_cast<std::size_t>(rank)]; }

  shm::Layout layout_;
  SharedRegion root_;
  std::vector<std::uint32_t> sent_;
};

}  // namespace weft::testing
