// Progress, operations and waiting.
#include "coll/core.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// How long an error of a transport waits for the control plane to name the rank to blame.
constexpr std::chrono::milliseconds kVerdictTime{1000};

}  // namespace

// ---- operations ----------------------------------------------------------------------------

Operation* Core::take() {
  if (free_operations.empty()) {
    pool.push_back(std::make_unique<Operation>());
    free_operations.push_back(pool.back().get());
  }
  Operation* op = free_operations.back();
  free_operations.pop_back();
  op->over = false;
  op->status = {};
  // The table stays half empty, so that an id with a free place is near; it grows with what is
  // under way, and everybody keeps its id.
  if (active.size() * 2 >= by_id.size()) {
    by_id.assign(by_id.size() * 2, nullptr);
    for (Operation* other : active) by_id[other->id % by_id.size()] = other;
  }
  while (by_id[next_id % by_id.size()]) ++next_id;
  op->id = next_id++;
  return op;
}

void Core::give_back(Operation* op) {
  op->kind = Operation::Kind::kFree;
  free_operations.push_back(op);
}

void Core::finish(Operation* op, const Status& status) {
  op->over = true;
  op->status = status;
  watch->end(*op);
}

void Core::start_plan(Operation* op, const Plan& plan) {
  op->kind = Operation::Kind::kPlan;
  op->call.id_high = op->id;
  by_id[op->id % by_id.size()] = op;
  active.push_back(op);
  for (const Node& n : plan.nodes) link_used[n.link] = true;
  const std::size_t total = op->call.total_bytes;
  op->call.streaming = total >= tuning.streaming_bytes;
  op->run.start(plan, op->call, slicing_for(tuning, plan, total), links);
  if (op->run.done()) {
    finish(op, {});
    std::erase(active, op);
    by_id[op->id % by_id.size()] = nullptr;
  }
}

void Core::start_message(Operation* op, bool send, void* data, std::size_t bytes) {
  GroupState& g = *op->group;
  const Rank peer = g.ranks[static_cast<std::size_t>(op->root)];
  auto& counter = (send ? g.sends : g.recvs)[static_cast<std::size_t>(op->root)];
  Transfer t;
  t.kind = send ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
  t.peer = peer;
  t.data = data;
  t.bytes = bytes;
  t.tag = static_cast<std::uint64_t>(g.id) << kIdShift | std::uint64_t{1} << kMessageBit |
          (counter++ & ((std::uint64_t{1} << kMessageBit) - 1));
  t.id = static_cast<std::uint64_t>(op->id) << 32;
  op->kind = Operation::Kind::kMessage;
  op->messages_left = 1;
  op->sends = send;
  op->record = watch->begin_message(g, send, bytes, op->root, counter - 1);
  by_id[op->id % by_id.size()] = op;
  active.push_back(op);
  const auto link = static_cast<std::size_t>(link_of(job->rank(), peer));
  link_used[link] = true;
  links[link]->post({&t, 1});
}

int Core::link_of(Rank a, Rank b) const {
  if (shm_peer[static_cast<std::size_t>(b)]) return shm_link;
  // Both ends must agree: the rail of the lower rank.
  return first_rail_link + topology->rail(std::min(a, b));
}

// ---- boards --------------------------------------------------------------------------------

void Core::start_board(Operation* op) {
  GroupState& g = *op->group;
  op->kind = Operation::Kind::kBoard;
  g.board_queue.push_back(op);
  if (g.board_queue.size() > 1) return;
  boards_busy.push_back(&g);
  publish_on_board(g, op->collective, op->call, op->root);
}

// ---- progress ------------------------------------------------------------------------------

bool Core::progress() {
  std::array<Completion, 64> batch;
  bool moved = false;
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (!link_used[l]) continue;
    const std::size_t n = links[l]->poll(batch);
    moved = moved || n != 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::uint32_t>(batch[i].id >> 32);
      Operation* op = by_id[id % by_id.size()];
      if (!op || op->id != id) continue;
      if (op->kind == Operation::Kind::kPlan) {
        op->run.complete(batch[i]);
      } else if (batch[i].code != Code::kOk) {
        const Rank peer = op->group->ranks[static_cast<std::size_t>(op->root)];
        Status why = links[l]->cause(peer);
        fail_after_verdict(
            Status(batch[i].code, why.ok() ? fmt::format("rank {}", peer) : why.message(), peer));
        return true;
      } else {
        --op->messages_left;
      }
    }
  }
  for (std::size_t i = 0; i < active.size();) {
    Operation* op = active[i];
    bool done;
    if (op->kind == Operation::Kind::kPlan) {
      op->run.progress();
      if (op->run.failure() != Code::kOk) {
        const Rank peer = op->run.failed_peer();
        const Status why = links[static_cast<std::size_t>(op->run.failed_link())]->cause(peer);
        fail_after_verdict(
            Status(op->run.failure(),
                   fmt::format("{} #{}: {}", name(op->collective), op->group->sequence,
                               why.ok() ? fmt::format("rank {}", peer) : why.message()),
                   peer));
        return true;
      }
      done = op->run.done();
    } else {
      done = op->messages_left == 0;
    }
    if (!done) {
      ++i;
      continue;
    }
    finish(op, {});
    by_id[op->id % by_id.size()] = nullptr;
    active[i] = active.back();
    active.pop_back();
  }
  for (std::size_t i = 0; i < boards_busy.size();) {
    GroupState& g = *boards_busy[i];
    while (!g.board_queue.empty() && board_ready(g)) {
      Operation* first = g.board_queue.front();
      board_finish(g, first->collective, first->call, first->root);
      finish(first, {});
      moved = true;
      g.board_queue.pop_front();
      if (!g.board_queue.empty()) {
        Operation* next = g.board_queue.front();
        publish_on_board(g, next->collective, next->call, next->root);
      }
    }
    if (g.board_queue.empty())
      boards_busy.erase(boards_busy.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  return moved;
}

void Core::fail(const Status& status) {
  if (broken.load()) return;
  // The others hear of it before they see our connections go, and all of us name the same rank.
  job->report(status);
  failure = job->failed() ? job->failure() : status;
  broken.store(true);
  for (Operation* op : active) {
    for (Transport* link : links) link->cancel(op->id);
    finish(op, failure);
    by_id[op->id % by_id.size()] = nullptr;
  }
  active.clear();
  for (GroupState* g : boards_busy)
    for (Operation* op : g->board_queue) finish(op, failure);
  for (GroupState* g : boards_busy) g->board_queue.clear();
  boards_busy.clear();
  spdlog::info("weft: rank {}: {}", job->rank(), failure.to_string());
}

// A connection breaks because its peer died, or because the peer heard of another rank's death
// before this one did. The control plane knows, and tells within milliseconds.
void Core::fail_after_verdict(const Status& suspicion) {
  if (suspicion.code() != Code::kMismatch && suspicion.code() != Code::kInvalidArgument) {
    const auto until = Clock::now() + kVerdictTime;
    while (!job->failed() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Where rank 0 cannot tell, its silence does.
    if (const Status silent = silence_status(suspicion.message()); !silent.ok())
      return fail(silent);
  }
  fail(suspicion);
}

// ---- waiting -------------------------------------------------------------------------------

// A peer was waited for in vain. Who is to blame: a rank known to be dead, one that has gone
// silent, or (nobody knows better) the one waited for.
Status Core::deadline_status(Operation* op) {
  if (const Status known = job->failure(); !known.ok()) return known;
  const std::string what =
      fmt::format("{} did not finish within {} ms", name(op->collective), options.timeout.count());
  if (const Status silent = silence_status(what); !silent.ok()) return silent;
  Rank peer = kNoRank;
  if (op->kind == Operation::Kind::kPlan) peer = op->run.waiting_for();
  if (op->kind == Operation::Kind::kMessage)
    peer = op->group->ranks[static_cast<std::size_t>(op->root)];
  if (op->kind == Operation::Kind::kBoard) peer = board_missing(*op->group);
  return {Code::kTimeout,
          fmt::format("{}: waiting for rank {}, which is alive; did it call the same collective "
                      "with the same arguments? (deadline: WEFT_TIMEOUT_MS)",
                      what, peer),
          peer};
}

// Names the rank that has been silent for the longest time: on a busy machine others may be late.
Status Core::silence_status(const std::string& what) const {
  auto age =
      std::max<std::chrono::milliseconds>(options.timeout / 2, std::chrono::milliseconds(100));
  std::vector<Rank> silent = job->silent(age);
  if (silent.empty()) return {};
  while (silent.size() > 1) {
    const auto longer = age * 9 / 8;
    std::vector<Rank> fewer = job->silent(longer);
    if (fewer.empty()) break;
    age = longer;
    silent = std::move(fewer);
  }
  return {Code::kPeerFailed,
          fmt::format("{}: rank {} on host {} has not been heard of for {} ms (stopped, or its "
                      "host is cut off)",
                      what, silent[0], topology->host_name(topology->host(silent[0])), age.count()),
          silent[0]};
}

Status Core::wait(Operation* op) {
  if (op->kind == Operation::Kind::kDevice) {  // its lane does the work, and bounds every wait
    std::unique_lock lock(mutex);
    device_done.wait(lock, [&] { return op->over; });
    const Status status = op->status;
    give_back(op);
    return status;
  }
  // The deadline runs from the last time anything moved: a long message may take its time.
  auto moved_at = Clock::now(), looked_at = moved_at;
  bool moved = false;
  const int spins = crowded ? tuning.spins_crowded : tuning.spins;
  int idle = 0;
  std::vector<int> fds;
  std::vector<pollfd> polls;
  std::unique_lock lock(mutex);
  for (std::uint64_t turn = 1; !op->over; ++turn) {
    if (progress()) {
      idle = 0;
      moved = true;
      continue;
    }
    if (++idle < spins) {
      relax();
      if (turn % 64 != 0) continue;
    }
    if (job->failed()) {
      fail(job->failure());
      continue;
    }
    if (turn % 16 == 0 || idle > spins + tuning.yields) {
      const auto now = Clock::now();
      if (std::exchange(moved, false)) {
        moved_at = now;
        watch->moving();
      } else if (now - looked_at > options.timeout / 4) {
        moved_at += now - looked_at;  // this process itself did not run: nobody was late
      }
      looked_at = now;
      watch->waiting(now - moved_at);
      if (now - moved_at > options.timeout) {
        fail(deadline_status(op));
        continue;
      }
    }
    if (idle < spins) continue;
    if (idle < spins + tuning.yields) {
      lock.unlock();
      sched_yield();
      lock.lock();
      continue;
    }
    // Idle for long: sleep until a network transport has news, or for a moment.
    fds.clear();
    bool armed = true;
    for (std::size_t l = 0; l < links.size(); ++l)
      if (link_used[l]) armed = links[l]->arm(fds) && armed;
    if (!armed) continue;
    polls.clear();
    for (const int fd : fds) polls.push_back({fd, POLLIN, 0});
    lock.unlock();
    const timespec nap{0, std::chrono::nanoseconds(tuning.nap).count()};
    ppoll(polls.data(), polls.size(), &nap, nullptr);
    lock.lock();
  }
  watch->moving();
  const Status status = op->status;
  // Others of this core may have what they wait for: they come first, not this rank's next call.
  const bool give_way =
      crowded && op->kind == Operation::Kind::kPlan && !op->group->one_machine && status.ok();
  give_back(op);
  if (give_way) {
    lock.unlock();
    sched_yield();
  }
  return status;
}

}  // namespace weft
