// Finds out which rank is to blame for what failed, or did not come in time, and ends all tasks.
// What takes long is done without the mutex: other tasks move meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "coll/observe/diagnosis.h"
#include "coll/runtime/core.h"
#include "topo/base/log.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// How long an error of a transport waits for the control plane to name the rank to blame.
constexpr std::chrono::milliseconds kVerdictTime{1000};

// How long a message of the wrong size waits for the one that says why.
constexpr std::chrono::milliseconds kHeadTime{1000};

}  // namespace

Rank culprit(const Status& cause, Rank peer) {
  return cause.rank() == kNoRank ? peer : cause.rank();
}

// ---- suspicions ----------------------------------------------------------------------------

void Core::suspect(Status why) {
  if (!suspicion) suspicion = {Suspicion::What::kKnown, nullptr, std::move(why)};
}
void Core::suspect(Task* task) {
  if (!suspicion) suspicion = {Suspicion::What::kTransfer, task};
}

void Core::settle(CoreLock& lock) {
  if (suspicion && !judging) judge(lock);
  if (!ended.empty()) call_ended(lock);
}

void Core::judge(CoreLock& lock) {
  judging = true;
  ++asking;  // close() waits
  Status why = suspicion->why;
  if (suspicion->what == Suspicion::What::kTransfer) why = cause_of(suspicion->task, lock);
  if (suspicion->what == Suspicion::What::kLate) why = blame(suspicion->task, lock);
  if (!why.ok() && !broken) {
    // The others hear of it before they see our connections go, and all of us name the same rank.
    lock.without([&] {
      why = telemetry->with_counters(why);
      job->report(why);
    });
    end_all(job->failed() ? job->failure() : why);
  }
  suspicion.reset();
  judging = false;
  --asking;
  judged.notify_all();
}

void Core::fail(const Status& why, CoreLock& lock) {
  while (!broken) {
    suspect(why);
    if (judging)
      judged.wait(lock);
    else
      judge(lock);
  }
}

void Core::notice_failure() {
  if (!mutex.try_lock()) return;
  const CoreLock lock(mutex, std::adopt_lock);
  if (job && job->failed()) end_all(job->failure());
}

void Core::end_all(const Status& why) {
  if (broken.load()) return;
  failure = telemetry->with_counters(why);
  failed_at = Clock::now();
  broken.store(true);
  stirred.clear();
  for (Task* task : tasks) {
    for (Transport* link : links)
      if (task->id) link->cancel(task->id);
    task->cancel();
  }
  while (!tasks.empty()) finish(tasks.back(), failure);
  judged.notify_all();
  log().info("weft: rank {}: {}", job->rank(), failure.to_string());
}

// ---- what failed ---------------------------------------------------------------------------

// A connection breaks because its peer died, or because the peer heard of another rank's death
// before this one did. The control plane knows, and tells within milliseconds. Where ranks
// disagree, rounds and messages may overtake each other: one of another size can be here before the
// one that brings the peer's head.
Status Core::cause_of(const Task* task, CoreLock& lock) {
  const Status why = task->failure();
  const bool disagree = why.code() == Code::kMismatch;
  if (why.code() == Code::kInvalidArgument || why.code() == Code::kCorrupt) return why;
  const auto until = Clock::now() + (disagree ? kHeadTime : kVerdictTime);
  do {
    if (disagree) {
      if (Status s = task->mismatch(); !s.ok()) return s;
      if (Status s = mismatch(); !s.ok()) return s;
      progress();
    }
    lock.without([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    if (broken) return failure;
    if (job->failed()) return job->failure();
  } while (Clock::now() < until);
  // Where rank 0 cannot tell, its silence does.
  const Status silent = disagree ? Status() : silence_status(why.message());
  return silent.ok() ? why : silent;
}

Status Core::mismatch() const {
  for (const Task* task : tasks)
    if (Status s = task->mismatch(); !s.ok()) return s;
  return {};
}

// ---- what is late --------------------------------------------------------------------------

// A peer was waited for in vain. Who is to blame: a rank known to be dead, the root that the
// recorders of all ranks show, a rank that has gone silent, or (nobody knows better) the one waited
// for.
Status Core::blame(const Task* task, CoreLock& lock) {
  const auto& whole = task->group->part_of;
  const CallDescriptor& call = whole.record ? whole.what : task->what;
  const std::string what =
      fmt::format("{} did not finish within {} ms", name(call.collective), options.timeout.count());
  const std::uint64_t record = task->record;
  const auto moved_at = task->stall.moved_at();
  const Rank peer = task->waiting_for();
  const Status why = inquire(what, lock);
  // It may have come while the ranks were asked.
  const auto here = std::ranges::find(tasks, task);
  if (here == tasks.end() || task->record != record || task->moved ||
      task->stall.moved_at() != moved_at)
    return {};
  if (!why.ok()) return why;
  return {Code::kTimeout,
          fmt::format("{}: waiting for rank {}, which is alive; did it call the same collective "
                      "with the same arguments? (deadline: WEFT_TIMEOUT_MS)",
                      what, peer),
          peer};
}

// A rank that waits on the control plane has the deadline of the ranks that exchange messages
// meanwhile, and its time is up no later than theirs. So it inquires as they do.
Status Core::gather_status(const Error& thrown) {
  if (const Status known = job->failure(); !known.ok()) return known;
  if (dynamic_cast<const GatherFailed*>(&thrown) == nullptr) return {};
  CoreLock lock(mutex);
  const Status why = inquire(thrown.what(), lock);
  return why.ok() ? Status(Code::kPeerFailed, thrown.what()) : why;
}

Status Core::inquire(const std::string& what, CoreLock& lock) {
  if (const Status cut = cut_off_status(what); !cut.ok()) return cut;
  telemetry->survey();
  Diagnosis d;
  lock.without([&] { d = telemetry->inquire(); });
  if (job->failed()) return job->failure();
  if (d.cause == Cause::kNone) return silence_status(what);
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

// Where nobody on two or more other hosts is heard any more, it is this one that is cut off: none
// of them is to blame. Only rank 0 hears of all.
Status Core::cut_off_status(const std::string& what) const {
  const int here = topology->host(job->rank()), others = topology->nhosts() - 1;
  if (job->rank() != 0 || others < 2) return {};
  const std::vector<Rank> silent = job->silent(silence_age());
  std::vector<bool> mute(static_cast<std::size_t>(job->size()));
  for (const Rank r : silent) mute[static_cast<std::size_t>(r)] = true;
  for (Rank r = 0; r < job->size(); ++r)
    if (topology->host(r) != here && !mute[static_cast<std::size_t>(r)]) return {};
  return {
      Code::kPeerFailed,
      fmt::format("{}: no rank of the {} other hosts has been heard of for {} ms: host {} is cut "
                  "off from them",
                  what, others, silence_age().count(), topology->host_name(here))};
}

// Names the rank that has been silent for the longest time: on a busy machine others may be late.
Status Core::silence_status(const std::string& what) const {
  auto age = silence_age();
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

}  // namespace weft
