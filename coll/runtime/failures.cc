// Long work runs without the mutex, so that other tasks make progress meanwhile.
#include "coll/runtime/failures.h"

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

// How long a diagnosis waits for the ranks' snapshots.
constexpr std::chrono::milliseconds kInquiry{1500};

// How long an error of a transport waits for the control plane to name the failed rank.
constexpr std::chrono::milliseconds kVerdictTime{1000};

// How long a message of the wrong size waits for the head that explains the mismatch.
constexpr std::chrono::milliseconds kHeadTime{1000};

// How long a task must stall before a rank that has ended its World counts as the cause.
constexpr std::chrono::milliseconds kLeftBehind{500};

// How long peers may send in a communicator after this rank has ended it, and how often their
// messages are dropped meanwhile.
constexpr std::chrono::milliseconds kStragglers{2000}, kSweepEvery{10};

bool has(const std::vector<Rank>& ranks, Rank rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

const GroupState& whole_of(const GroupState& g) { return g.whole ? *g.whole : g; }

// A rank that ends its World after a failure has finished its part of shared tasks. Those tasks do
// not end at once, since the rank's messages may still be in flight.
bool leaves_behind(const JobFailure& f) {
  return f.scope.ends == Scope::Ends::kRank && f.status.code() == Code::kAborted;
}

}  // namespace

Rank culprit(const Status& cause, Rank peer) {
  return cause.rank() == kNoRank ? peer : cause.rank();
}

// ---- scopes --------------------------------------------------------------------------------

bool concerns(const Scope& scope, const GroupState& g) {
  const GroupState& whole = whole_of(g);
  switch (scope.ends) {
    case Scope::Ends::kRank:
      return has(whole.ranks, scope.rank);
    case Scope::Ends::kGroup:
      return whole.number == scope.group && whole.ranks.front() == scope.rank;
    default:
      return true;
  }
}

Scope Failures::scope_of(const GroupState& g) const {
  const GroupState& whole = whole_of(g);
  return {Scope::Ends::kGroup, whole.ranks.front(), whole.number,
          whole.ranks.size() == static_cast<std::size_t>(core_.topology->nranks())};
}

Scope Failures::scope_of(const Status& why, const GroupState& g) const {
  if (why.code() != Code::kPeerFailed) return scope_of(g);
  if (why.rank() == kNoRank) return {};  // this host is cut off
  return has(whole_of(g).ranks, why.rank()) ? Scope{Scope::Ends::kRank, why.rank()} : scope_of(g);
}

const GroupState* Failures::group_of(const Scope& scope) const {
  for (const auto& [id, g] : core_.groups.all)
    if (g && concerns(scope, *g)) return g;
  return nullptr;
}

bool Failures::over(const Scope& scope) const {
  if (scope.ends == Scope::Ends::kAll) return broken_;
  const GroupState* const g = group_of(scope);
  return !g || g->broken;
}

// ---- suspicions ----------------------------------------------------------------------------

void Failures::suspect(Suspicion suspicion) {
  if (std::ranges::find(suspicions_, suspicion.scope, &Suspicion::scope) == suspicions_.end() &&
      !over(suspicion.scope))
    suspicions_.push_back(std::move(suspicion));
}

void Failures::forget(const Task* task) {
  std::erase_if(suspicions_, [&](const Suspicion& s) WEFT_REQUIRES(core_held) {
    return s.task == task && !(judging_ && &s == suspicions_.data());
  });
}

void Failures::judge(CoreLock& lock) {
  if (judging_ || suspicions_.empty()) return;
  const Suspicion first = suspicions_.front();
  judging_ = true;
  ++core_.asking;  // close() waits
  // Runs also if the job or a diagnosis throws: the deadline then suspects the task again.
  struct End {
    Failures& of;
    const Scope& scope;
    ~End() WEFT_NO_THREAD_SAFETY_ANALYSIS {
      std::erase_if(of.suspicions_, [&](const Suspicion& s) { return s.scope == scope; });
      of.judging_ = false;
      --of.core_.asking;
      of.judged_.notify_all();
    }
  };
  const End end{*this, first.scope};
  Blame found{first.why};
  if (first.what == Suspicion::What::kTransfer) found = {cause_of(first, lock)};
  if (first.what == Suspicion::What::kLate) found = blame(first, lock);
  Status& why = found.why;
  if (!why.ok() && !over(first.scope)) {
    const GroupState* const g =
        first.scope.ends == Scope::Ends::kAll ? nullptr : group_of(first.scope);
    const Scope scope = g && !found.all ? scope_of(why, *g) : Scope{};
    // Report first: the other ranks get the failure before our connections close, so all name the
    // same rank.
    lock.without([&] {
      why = core_.telemetry->with_counters(why);
      core_.job->report(why, scope);
    });
    hear();
    if (!over(first.scope)) end_groups(why, first.scope);  // needed if rank 0 does not answer
  }
}

void Failures::fail(const Status& why, const GroupState* g, CoreLock& lock) {
  const Scope scope = g ? scope_of(*g) : Scope{};
  while (!over(scope)) {
    suspect({.scope = scope, .why = why});
    if (judging_)
      judged_.wait(lock);
    else
      judge(lock);
  }
}

void Failures::notice() {
  if (!core_.mutex.try_lock()) return;
  const CoreLock lock(core_.mutex, std::adopt_lock);
  if (core_.job) hear();
}

// ---- the end of communicators --------------------------------------------------------------

void Failures::hear() {
  if (core_.job->heard() == heard_) [[likely]]
    return;
  for (const JobFailure& f : core_.job->failures(heard_)) {
    ++heard_;
    if (leaves_behind(f))
      left_.push_back(f);
    else
      end_groups(f.status, f.scope);
  }
}

void Failures::end_left_behind(const Task* task, Clock::time_point now) {
  if (left_.empty() || now - task->stall.moved_at() < kLeftBehind) return;
  for (const JobFailure& f : left_)
    if (concerns(f.scope, *task->group)) return end_groups(f.status, f.scope);
}

void Failures::end_groups(const Status& why, const Scope& scope) {
  if (broken_) return;
  const auto now = Clock::now();
  const Status told = core_.telemetry->with_counters(why);
  if (scope.ends == Scope::Ends::kAll) {
    failure_ = told;
    broken_ = true;
  }
  bool any = false;
  for (const auto& [id, g] : core_.groups.all) {
    if (!g || g->broken || !concerns(scope, *g)) continue;
    any = true;
    g->failure = told;
    g->broken = true;
    swept_.emplace_back(id, now + kStragglers);
  }
  if (!any) return;
  if (first_end_.ok()) first_end_ = told;
  if (why.code() == Code::kMismatch) disagreed_at_ = now;
  core_.tasks.end_broken();
  judged_.notify_all();
  if (!core_.ending) log().info("weft: rank {}: {}", core_.job->rank(), told.to_string());
}

Status Failures::of_new(const GroupState& g) const {
  if (broken_) return failure_;
  for (const JobFailure& f : core_.job->failures(0))
    if (concerns(f.scope, g)) return f.status;
  return {};
}

void Failures::sweep_all(Clock::time_point now) {
  if (now - swept_at_ < kSweepEvery) return;
  swept_at_ = now;
  std::erase_if(swept_, [&](const auto& one) WEFT_REQUIRES(core_held) {
    const auto& [id, until] = one;
    const auto it = core_.groups.all.find(id);
    if (it == core_.groups.all.end() || (it->second && it->second->broken))
      core_.groups.forget_messages(id);
    return now > until;
  });
}

// ---- what failed ---------------------------------------------------------------------------

// A connection breaks because its peer died, or because the peer learned of another rank's death
// before this rank did. The control plane knows the cause, and reports it within milliseconds. If
// ranks disagree, rounds and messages may overtake each other: a message of the wrong size can
// arrive before the message with the peer's head.
Status Failures::cause_of(const Suspicion& suspicion, CoreLock& lock) {
  const Task* const task = suspicion.task;
  const Status why = task->failure();
  const std::vector<Rank> ranks = task->group->ranks;
  const bool disagree = why.code() == Code::kMismatch;
  if (why.code() == Code::kInvalidArgument || why.code() == Code::kCorrupt) return why;
  const auto until = Clock::now() + (disagree ? kHeadTime : kVerdictTime);
  do {
    if (disagree) {
      if (Status s = task->mismatch(); !s.ok()) return s;
      if (Status s = mismatch(suspicion.scope); !s.ok()) return s;
      core_.tasks.progress();
    }
    lock.without([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    hear();
    if (over(suspicion.scope)) return {};
    for (const JobFailure& f : left_)  // its connection closed because it ended its World
      if (f.scope.rank == why.rank()) return f.status;
  } while (Clock::now() < until);
  // If rank 0 reports nothing, it may be unresponsive itself.
  const Status silent = disagree ? Status() : silence_status(why.message(), ranks);
  return silent.ok() ? why : silent;
}

Status Failures::mismatch(const Scope& scope) const {
  for (const Task* task : core_.tasks.all())
    if (concerns(scope, *task->group))
      if (Status s = task->mismatch(); !s.ok()) return s;
  return {};
}

// ---- late tasks ----------------------------------------------------------------------------

// Called when the task's deadline has passed. Searches for the cause in this order: a rank known to
// be dead, the root cause in the recorders of all ranks, an unresponsive rank, the peer that the
// task waits for.
Failures::Blame Failures::blame(const Suspicion& suspicion, CoreLock& lock) {
  const Task* const task = suspicion.task;
  const std::string what =
      fmt::format("{} did not finish within {} ms", name(task->what().collective),
                  core_.options.timeout.count());
  const std::uint64_t record = task->record;
  const auto moved_at = task->stall.moved_at();
  const Rank peer = task->waiting_for();
  const Blame found = inquire(what, suspicion.scope, std::vector(task->group->ranks), lock);
  if (over(suspicion.scope)) return {};
  // The missing data may have arrived during the inquiry.
  const auto here = std::ranges::find(core_.tasks.all(), task);
  if (here == core_.tasks.all().end() || task->record != record || task->moved ||
      task->stall.moved_at() != moved_at)
    return {};
  if (!found.why.ok()) return found;
  return {{Code::kTimeout,
           fmt::format("{}: waiting for rank {}, which is alive; did it call the same collective "
                       "with the same arguments? (deadline: WEFT_TIMEOUT_MS)",
                       what, peer),
           peer}};
}

// The deadline of a rank that waits on the control plane expires no later than the deadlines of
// ranks that exchange messages meanwhile. So this rank runs the same inquiry.
Status Failures::gather_status(const Error& thrown) {
  if (const Status known = core_.job->failure(); !known.ok()) return known;
  if (dynamic_cast<const GatherFailed*>(&thrown) == nullptr) return {};
  CoreLock lock(core_.mutex);
  const Status why = inquire(thrown.what(), {}, {}, lock).why;
  return why.ok() ? Status(Code::kPeerFailed, thrown.what()) : why;
}

Failures::Blame Failures::inquire(const std::string& what, const Scope& scope,
                                  const std::vector<Rank>& among, CoreLock& lock) {
  if (const Status cut = cut_off_status(what); !cut.ok()) return {cut};
  Diagnosis d;
  for (bool again = true; again;) {
    core_.telemetry->survey();
    std::vector<std::string> told;
    const std::size_t before = core_.job->heard();
    lock.without([&] {
      told = core_.job->inquire(kInquiry);
      if (core_.job->heard() == before)
        d = core_.telemetry->diagnose(std::move(told), core_.job->silent(silence_age()));
    });
    again = core_.job->heard() != before;  // another failure ends the inquiry, too
    hear();
    if (scope.ends == Scope::Ends::kAll && core_.job->failed()) return {core_.job->failure()};
    if (over(scope)) return {};
  }
  if (d.cause == Cause::kNone) return {silence_status(what, among)};
  std::string text = fmt::format("{}: {}", what, d.text);
  if (d.cause == Cause::kUnknown) {
    // The rank's heartbeats, which are short, arrive; its snapshot, which is long, does not.
    const auto host = [&](Rank r) { return core_.topology->host_name(core_.topology->host(r)); };
    text += fmt::format(
        ", although its heartbeats arrive: it is too busy to answer, or between hosts {} and {} "
        "long messages are lost where short ones pass (check the MTU all along the path: `ping -M "
        "do -s 1472`)",
        host(core_.job->rank()), host(d.rank));
  }
  return {{code_of(d.cause), text.substr(0, Telemetry::kMostText), d.rank}, d.other_order};
}

std::chrono::milliseconds Failures::silence_age() const {
  return std::max<std::chrono::milliseconds>(core_.options.timeout / 2,
                                             std::chrono::milliseconds(100));
}

// If no rank on two or more other hosts responds, this host is cut off. Only rank 0 receives
// heartbeats of all ranks.
Status Failures::cut_off_status(const std::string& what) const {
  const int here = core_.topology->host(core_.job->rank()), others = core_.topology->nhosts() - 1;
  if (core_.job->rank() != 0 || others < 2) return {};
  const std::vector<Rank> silent = core_.job->silent(silence_age());
  std::vector<bool> mute(static_cast<std::size_t>(core_.job->size()));
  for (const Rank r : silent) mute[static_cast<std::size_t>(r)] = true;
  for (Rank r = 0; r < core_.job->size(); ++r)
    if (core_.topology->host(r) != here && !mute[static_cast<std::size_t>(r)]) return {};
  return {Code::kPeerFailed,
          fmt::format("{}: no rank of the {} other hosts has responded for {} ms: host {} is cut "
                      "off from them",
                      what, others, silence_age().count(), core_.topology->host_name(here))};
}

// Names the rank that has been unresponsive for the longest time: on a busy machine other ranks may
// be merely late.
Status Failures::silence_status(const std::string& what, const std::vector<Rank>& among) const {
  const auto silent_for = [&](std::chrono::milliseconds age) {
    std::vector<Rank> ranks = core_.job->silent(age);
    if (!among.empty()) std::erase_if(ranks, [&](Rank r) { return !has(among, r); });
    return ranks;
  };
  auto age = silence_age();
  std::vector<Rank> silent = silent_for(age);
  if (silent.empty()) return {};
  while (silent.size() > 1) {
    const auto longer = age * 9 / 8;
    std::vector<Rank> fewer = silent_for(longer);
    if (fewer.empty()) break;
    age = longer;
    silent = std::move(fewer);
  }
  return {Code::kPeerFailed,
          fmt::format("{}: rank {} on host {} has not responded for {} ms (stopped, or its "
                      "host is cut off)",
                      what, silent[0], core_.topology->host_name(core_.topology->host(silent[0])),
                      age.count()),
          silent[0]};
}

}  // namespace weft
