// Set-up of the shm transport: the members exchange descriptors of their memory and map it.
#include "transport/shm/shm.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "transport/job/exchange.h"
#include "transport/shm/transport.h"

namespace weft {
namespace shm {
namespace {

const std::uint64_t probe_word = kProbe;

// Cross-memory attach is for messages above the largest slot. For collectives' slices, which are
// shorter, a slot that stays in cache is three times as fast as the kernel's copy, which pins pages
// one by one (1 MiB all-reduce, 2 ranks: 38 us against 114 us; docs/benchmarks).
constexpr std::size_t kCmaMin = kMaxSlot + 1;

std::string copy_mode() {
  const char* copy = std::getenv("WEFT_SHM_COPY");
  const std::string mode = copy ? copy : "auto";
  if (mode != "auto" && mode != "slots" && mode != "cma")
    throw Error(fmt::format("WEFT_SHM_COPY={} is not one of auto, slots, cma", mode));
  return mode;
}

bool can_attach(int pid, std::uint64_t probe) {
  std::uint64_t word = 0;
  const iovec here{&word, sizeof word};
  const iovec there{reinterpret_cast<void*>(probe), sizeof word};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof word && word == kProbe;
}

// Number of transports of this process whose peers read its memory.
std::atomic<int> readable{0};

}  // namespace

// Yama lets only ancestors attach to a process, if at all, unless that process permits others.
Readable::Readable() {
  ++readable;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Readable::~Readable() {
  if (--readable == 0) prctl(PR_SET_PTRACER, 0, 0, 0, 0);
}

void Readable::only_for_children_of(int pid) noexcept {
  if (readable == 1) prctl(PR_SET_PTRACER, pid, 0, 0, 0);
}

ShmTransport::ShmTransport(Job& job, const Topology& topology, std::span<const Rank> members,
                           std::size_t at_once)
    : layout_(static_cast<int>(members.size())),
      member_of_(static_cast<std::size_t>(topology.nranks()), -1) {
  const std::string mode = copy_mode();
  if (mode != "slots") readable_.emplace();
  // Only members exchange the hellos. A rank without memory reports the reason to all ranks in the
  // exchange below.
  std::string broken, mine;
  try {
    arena_ = SharedRegion::create(layout_.bytes, "weft-arena", SharedRegion::Others::kWrite);
    const Hello hello{.pid = getpid(),
                      .parent = getppid(),
                      .arena_fd = arena_.fd(),
                      .directory_fd = region_directory_fd(),
                      .arena_bytes = layout_.bytes,
                      .probe = reinterpret_cast<std::uint64_t>(&probe_word),
                      .lends = mode != "slots"};
    mine = std::string(reinterpret_cast<const char*>(&hello), sizeof hello);
  } catch (const Error& error) {
    broken = error.what();
  }
  const auto hellos = job.all_gather_in_group(std::to_string(members.front()), mine);
  // Whether all members can attach to each other: senders choose, and every receiver must comply.
  const auto verdicts = exchange(job, topology, [&] {
    if (!broken.empty()) throw Error(broken);
    for (const Rank r : members)
      if (hellos[static_cast<std::size_t>(r)].empty()) return std::string("0");  // it reports why
    reach(job.rank(), members, hellos);
    for (Peer& p : peers_)
      if (members.size() <= at_once || p.rank == job.rank()) map(p);
    return std::string(cma_ ? "1" : "0");
  });
  for (const Rank r : members) cma_ = cma_ && verdicts[static_cast<std::size_t>(r)] == "1";
  choose_copies(mode);
  make_slots();
}

void ShmTransport::reach(Rank me, std::span<const Rank> members,
                         std::span<const std::string> hellos) {
  cma_ = true;
  bool siblings = true;  // all members have the same parent
  const std::size_t n = members.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (members[i] == me) me_ = static_cast<int>(i);
    member_of_[static_cast<std::size_t>(members[i])] = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < n; ++i) {
    Hello hello;
    const std::string& text = hellos[static_cast<std::size_t>(members[i])];
    if (text.size() != sizeof hello)
      throw Error(fmt::format("shm: rank {} runs another version of weft", members[i]));
    std::memcpy(&hello, text.data(), sizeof hello);
    Peer p;
    p.rank = members[i];
    p.pid = hello.pid;
    p.arena_fd = hello.arena_fd;
    p.directory_fd = hello.directory_fd;
    if (static_cast<int>(i) != me_) {
      if (hello.arena_bytes != layout_.bytes)
        throw Error(
            fmt::format("shm: ranks {} and {} disagree about the number of ranks on this machine",
                        members[i], me));
      cma_ = cma_ && (!hello.lends || can_attach(hello.pid, hello.probe));
    }
    siblings = siblings && hello.parent > 1 && hello.parent == getppid();
    p.in = reinterpret_cast<Cell*>(arena_.data() + layout_.rings) + i * kRing;
    p.heads_in = reinterpret_cast<const Head*>(arena_.data() + layout_.heads) + i * kRing;
    p.acks_in = reinterpret_cast<Acks*>(arena_.data() + layout_.acks) + i;
    p.matching.count_in(unexpected_);
    peers_.push_back(std::move(p));
  }
  if (siblings && readable_) readable_->only_for_children_of(getppid());
}

void ShmTransport::map(Peer& p) {
  near_.push_back(&p);
  if (&p == &peers_[static_cast<std::size_t>(me_)]) {
    p.arena = arena_.data();
  } else {
    try {
      p.region = SharedRegion::open(p.pid, p.arena_fd, layout_.bytes, SharedRegion::Others::kWrite);
    } catch (const Error& error) {
      breaks(p, error.what());
      throw Error(fmt::format("shm: rank {}: {}", p.rank, error.what()));
    }
    // In the peer's arena, this rank writes only cells, heads and acknowledgments.
    p.region.read_only_from(layout_.boards);
    p.arena = p.region.data();
  }
  const auto me = static_cast<std::size_t>(me_);
  p.out = reinterpret_cast<Cell*>(p.arena + layout_.rings) + me * kRing;
  p.heads_out = reinterpret_cast<Head*>(p.arena + layout_.heads) + me * kRing;
  p.acks_out = reinterpret_cast<Acks*>(p.arena + layout_.acks) + me;
  p.log.resize(kRing);
  p.kept.cells.resize(kRing);
  auto* const callers = reinterpret_cast<Callers*>(p.arena + layout_.callers);
  callers->called(me).store(1, std::memory_order_relaxed);
  callers->count.fetch_add(1, std::memory_order_release);
}

bool ShmTransport::reached(Peer& p) noexcept {
  if (p.arena || p.broken) [[likely]]
    return !p.broken;
  try {
    map(p);
  } catch (const Error&) {
    return false;  // p.error has the reason
  }
  return true;
}

void ShmTransport::meet_callers() noexcept {
  auto* const callers = reinterpret_cast<Callers*>(arena_.data() + layout_.callers);
  const std::uint32_t count = callers->count.load(std::memory_order_acquire);
  if (count == callers_) [[likely]]
    return;
  callers_ = count;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (callers->called(i).load(std::memory_order_relaxed)) (void)reached(peers_[i]);
}

void ShmTransport::choose_copies(std::string_view mode) {
  if (mode == "slots") cma_ = false;
  if (mode == "cma" && !cma_)
    throw Error(
        "WEFT_SHM_COPY=cma, but the kernel forbids process_vm_readv between these ranks; "
        "see kernel.yama.ptrace_scope and the container's seccomp profile");
  if (!cma_) readable_.reset();
  cma_min_bytes_ = mode == "cma" ? kInline + 1 : kCmaMin;
}

void ShmTransport::make_slots() {
  int slot = 0;
  std::size_t base = layout_.slots;
  slot_refs_.assign(kAllSlots, 0);
  for (int c = 0; c < kSlotClasses; ++c) {
    slot_base_[c] = base;
    base += kSlots[c].stride() * static_cast<std::size_t>(kSlots[c].count);
    slot += kSlots[c].count;
    for (int i = 1; i <= kSlots[c].count; ++i) free_slots_[c].push_back(slot - i);
  }
}

std::unique_ptr<Board> ShmTransport::make(std::span<const Rank> members,
                                          std::span<const std::uint64_t> parts) {
  std::vector<std::byte*> arenas;
  std::size_t me = members.size();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Rank r = members[i];
    if (i < parts.size() && !BoardParts::exists(parts[i]))
      throw Error(fmt::format("shm: rank {} offers a part of a board that does not exist", r));
    const int m = member_of_[static_cast<std::size_t>(r)];
    if (m < 0) continue;
    if (m == me_) me = arenas.size();
    Peer& p = peers_[static_cast<std::size_t>(m)];
    if (!p.arena && !reached(p)) throw Error(fmt::format("shm: rank {}: {}", r, p.error));
    arenas.push_back(p.arena + layout_.boards);
  }
  const bool all = arenas.size() == members.size() &&
                   std::find(parts.begin(), parts.end(), std::uint64_t{0}) == parts.end();
  if (all && me < members.size()) return parts_.make(arenas, parts, static_cast<int>(me));
  if (me < members.size()) parts_.withdraw(parts[me]);
  return nullptr;
}

std::unique_ptr<Board> ShmTransport::fixed(std::span<const Rank> members, std::uint32_t id) {
  if (id >= kFixedBoards) return nullptr;
  const std::vector<std::uint64_t> parts(members.size(), BoardParts::fixed(id));
  return make(members, parts);
}

Caps ShmTransport::caps() const {
  return {.name = "shm", .inline_bytes = kInline, .max_view = kMaxSlot};
}

Status ShmTransport::cause(Rank peer) const {
  const int m = member(peer);
  if (m < 0) return {Code::kTransport, fmt::format("rank {} is not on this machine", peer), peer};
  const Peer& p = peers_[static_cast<std::size_t>(m)];
  if (p.error.empty()) return {};
  return {p.broken ? Code::kTransport : Code::kPeerFailed,
          fmt::format("rank {} (pid {}): {}", peer, p.pid, p.error), peer};
}

bool ShmTransport::disputed(Rank peer, Head& theirs) const noexcept {
  const int m = member(peer);
  if (m < 0) return false;
  theirs = peers_[static_cast<std::size_t>(m)].disputed;
  return theirs.sign != 0;
}

Rank ShmTransport::unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                              Head& theirs) noexcept {
  if (peer == kNoRank && unexpected_ == 0) return kNoRank;
  meet_callers();
  for (Peer* const one : near_) {
    Peer& p = *one;
    if (peer != kNoRank && peer != p.rank) continue;
    if (peer != kNoRank) drain(p);
    p.matching.for_each_unexpected([&](Unexpected& early) {
      if (early.kept.spilled) return;
      early.headed = p.in[early.kept.cell % kRing].sign != 0;
      if (early.headed) early.head = head_of(p, early.kept.cell);
    });
    if (p.matching.has_unexpected(tag, mask, theirs)) return p.rank;
  }
  return kNoRank;
}

}  // namespace shm

std::unique_ptr<Transport> make_shm_transport(Job& job, const Topology& topology,
                                              std::span<const Rank> members, std::size_t at_once) {
  return std::make_unique<shm::ShmTransport>(job, topology, members, at_once);
}

}  // namespace weft
