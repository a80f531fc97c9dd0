// Ends all tasks with one failure: what failed, and which rank is to blame.
// This file does not find out which ranks disagree; agreement.cc does.
#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <string>
#include <thread>

#include "coll/engine/signature.h"
#include "coll/observe/diagnosis.h"
#include "coll/runtime/core.h"
#include "topo/base/log.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// How long an error of a transport waits for the control plane to name the rank to blame.
constexpr std::chrono::milliseconds kVerdictTime{1000};

// How long a failure of ranks that are all alive takes to reach them.
constexpr std::chrono::milliseconds kHeard{30};

// The user's call that failed, "all_reduce #12".
std::string call_title(const Task& op) {
  const GroupState::PartOf& whole = op.group->part_of;
  return fmt::format("{} #{}", name(whole.record ? whole.collective : op.collective),
                     op.call.head.about[1] & kSignatureSequenceMask);
}

// Whom a transport blames for what failed with a peer: this rank itself may have no socket.
Rank culprit(const Status& cause, Rank peer) {
  return cause.rank() == kNoRank ? peer : cause.rank();
}

}  // namespace

void Core::notice_failure() {
  if (!mutex.try_lock()) return;
  const CoreLock lock(mutex, std::adopt_lock);
  if (job && !broken && job->failed()) fail(job->failure());
}

void Core::fail_message(const Task* op, Code code, std::size_t link) {
  const Rank peer = op->group->ranks[static_cast<std::size_t>(op->root)];
  if (code == Code::kMismatch && fail_disputed(op->call.head, peer, link)) return;
  const Status why = links[link]->cause(peer);
  fail_after_verdict(
      {code, why.ok() ? fmt::format("rank {}", peer) : why.message(), culprit(why, peer)});
}

void Core::fail_run(const Task* op) {
  const Run& run = op->run;
  const Rank peer = run.failed_peer();
  if (run.failure() == Code::kMismatch && fail_mismatch(op)) return;
  const Status why = links[static_cast<std::size_t>(run.failed_link())]->cause(peer);
  const bool names_rail = why.message().find(", rail ") != std::string::npos;
  fail_after_verdict(
      {run.failure(),
       fmt::format("{}: {} ({}{})", call_title(*op),
                   why.ok() ? fmt::format("rank {}", peer) : why.message(), run.failed_step(),
                   names_rail ? std::string() : rail_name(run.failed_link())),
       culprit(why, peer)});
}

void Core::fail(const Status& why) {
  if (broken.load()) return;
  const Status status = telemetry->with_counters(why);
  // The others hear of it before they see our connections go, and all of us name the same rank.
  job->report(status);
  // Whoever told of it first; and what this host's ports have to say about it.
  failure = telemetry->with_counters(job->failed() ? job->failure() : status);
  // Ranks that disagree are alive, and may be connecting at this moment. UCX 1.13 ends the process
  // where a connection closes while it is made from both sides: let them hear of it first.
  if (status.code() == Code::kMismatch && first_rail_link >= 0) std::this_thread::sleep_for(kHeard);
  broken.store(true);
  for (Task* op : active) {
    for (Transport* link : links) link->cancel(op->id);
    finish(op, failure);
    place_of(op->id) = nullptr;
  }
  for (Task* op : active) {
    std::deque<Task*> next;
    next.swap(op->group->next);
    op->group->running.clear();
    for (Task* waits : next) finish(waits, failure);
  }
  active.clear();
  for (GroupState* g : boards_busy)
    for (Task* op : g->board_queue) finish(op, failure);
  for (GroupState* g : boards_busy) g->board_queue.clear();
  boards_busy.clear();
  log().info("weft: rank {}: {}", job->rank(), failure.to_string());
}

// A connection breaks because its peer died, or because the peer heard of another rank's death
// before this one did. The control plane knows, and tells within milliseconds.
void Core::fail_after_verdict(const Status& suspicion) {
  if (suspicion.code() != Code::kMismatch && suspicion.code() != Code::kInvalidArgument &&
      suspicion.code() != Code::kCorrupt) {
    const auto until = Clock::now() + kVerdictTime;
    while (!job->failed() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Where rank 0 cannot tell, its silence does.
    if (const Status silent = silence_status(suspicion.message()); !silent.ok())
      return fail(silent);
  }
  fail(suspicion);
}

Status Core::verdict(const std::string& what) {
  const Diagnosis d = telemetry->inquire();
  if (job->failed()) return job->failure();
  if (d.cause == Cause::kNone) return {};
  std::string text = fmt::format("{}: {}", what, d.text);
  if (d.cause == Cause::kUnknown) {
    // Its heartbeats come, and they are short: what it has to say is not.
    const auto host = [&](Rank r) { return topology->host_name(topology->host(r)); };
    text += fmt::format(
        ", though it is heard of: it is too busy to answer, or between hosts {} and {} long "
        "messages are lost where short ones pass (look at the MTU all along the way: `ping -M do "
        "-s 1472`)",
        host(job->rank()), host(d.rank));
  }
  return {code_of(d.cause), text.substr(0, Telemetry::kMostText), d.rank};
}

}  // namespace weft
