// Telemetry: fills the recorder, counters and trace from the runtime's calls, and answers for this
// rank when the job or an outsider asks. This file does not decide which rank caused a failure.
#include "coll/runtime/telemetry.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "coll/engine/signature.h"
#include "coll/footprint.h"
#include "coll/observe/diagnosis.h"
#include "coll/runtime/core.h"
#include "topo/base/log.h"
#include "transport/control/hmac.h"

namespace weft {
namespace {

// Shorter waits have harmless causes: a slow slice, a descheduled peer.
constexpr std::chrono::milliseconds kStall{5};
// After a stall of this length all arrived messages have been completed, and nothing moves any
// more.
constexpr std::chrono::milliseconds kSettled{200};

constexpr std::chrono::seconds kMetricsPeriod{5};
constexpr std::chrono::milliseconds kMarkPeriod{100};
constexpr std::uint64_t kTimedFirst = 64, kTimedOf = 16;

std::uint64_t exact_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// For the constructor, during which no other thread uses the core.
std::vector<std::string> link_names(const Core& core) WEFT_NO_THREAD_SAFETY_ANALYSIS {
  std::vector<std::string> names;
  for (int l = 0; l < static_cast<int>(core.links.all.size()); ++l) {
    if (l == core.links.shm_link) {
      names.emplace_back("shm");
      continue;
    }
    const auto rail = static_cast<std::size_t>(l - core.links.first_rail_link);
    const auto& rails = core.topology->place(core.job->rank()).rails;
    names.push_back(rail < rails.size() ? fmt::format("rail {} ({})", rail, rails[rail].name)
                                        : fmt::format("rail {}", rail));
  }
  return names;
}

// The file of this rank that the variable names; empty if it is not set.
std::string own_file(const char* variable, Rank me, int shrunk = 0) {
  const char* path = std::getenv(variable);
  if (!path || !*path) return {};
  return file_of_rank(shrunk > 0 ? file_after_shrink(path, shrunk) : path, me);
}

}  // namespace

Telemetry::Telemetry(Core& core, std::function<void()> on_beat)
    : core_(core),
      on_beat_(std::move(on_beat)),
      job_(core.job.get()),
      metrics_file_(own_file("WEFT_METRICS", job_->rank())),
      recorder_(*job_, *core.topology, link_names(core), std::getenv("WEFT_TRACE") != nullptr),
      counters_(job_->rank(), job_->size(), link_names(core), core.links.shm_link),
      ports_(core.links.first_rail_link >= 0 ? core.topology->place(job_->rank()) : Place{},
             core.topology->host_name(core.topology->host(job_->rank()))) {
  job_->set_witness(this);
  if (!recorder_.any_traces()) return;
  const Rank me = job_->rank();
  // A rank without WEFT_TRACE still takes part in aligning the clocks.
  const std::string file = own_file("WEFT_TRACE", me, core.shrunk);
  const Topology& t = *core.topology;
  trace_ = std::make_unique<Trace>(file, me, t.host_name(t.host(me)), counters_.links);
  if (!file.empty())
    core.links.wrap([this](std::unique_ptr<Transport> of, int link) {
      return trace_->wrap(std::move(of), link);
    });
  align_clocks();
}

Telemetry::~Telemetry() { left(); }

void Telemetry::left() noexcept {
  if (!job_) return;
  job_->set_witness(nullptr);
  job_ = nullptr;
  write_metrics();
  metrics_file_.close();
  if (trace_) trace_->write();
}

void Telemetry::align_clocks() {
  if (!trace_) return;
  trace_->align(*job_);
  const Topology& t = *core_.topology;
  if (t.place(0).machine == t.place(recorder_.own().rank).machine) trace_->aligned();
}

void Telemetry::name_communicator(const GroupState& group, std::string name) {
  if (trace_) trace_->name_communicator(group.id, std::move(name), group.ranks);
}

std::uint64_t Telemetry::begin(const GroupState& group, const Prepared& of,
                               std::uint64_t number) noexcept {
  if (const std::uint64_t whole = group.part_of.record) return whole | kPart;
  const CallDescriptor& what = of.what;
  Counters::Call& counted = counters_.calls[static_cast<std::size_t>(what.collective)];
  counted.calls.add();
  counted.bytes.add(what.count * (what.message ? 1 : size_of(what.type)));
  const std::uint64_t record = recorder_.begin(of.packed, number);
  if (trace_) [[unlikely]]
    trace_->begin(record, numbered(what, number));
  return record;
}

std::size_t Telemetry::group_size(const GroupState& g) { return g.ranks.size(); }

void Telemetry::open(Task& op) noexcept {
  if (!op.record) op.record = begin(*op.group, *op.prepared, op.number);
}

void Telemetry::starting(Task& op) noexcept {
  open(op);
  if (trace_) trace_->name_transfers(op.id, op.record & ~kPart);
  // Reading the clock costs tens of nanoseconds, so only a sample of later tasks is timed.
  const std::uint64_t number = timed_++;
  const bool ports = core_.options.counters;
  if (ports) mark_ports();
  op.timing.began_ns = ports || number < kTimedFirst || number % kTimedOf == 0 ? exact_ns() : 0;
}

// Port counters of a slow task count from its start. Reading them costs 0.1 ms, so small tasks
// share one read.
void Telemetry::mark_ports() {
  const auto now = std::chrono::steady_clock::now();
  if (core_.tasks.all().size() > 1 || now - marked_at_ < kMarkPeriod) return;
  marked_at_ = now;
  ports_.mark();
}

void Telemetry::slow(const Task& op, std::chrono::nanoseconds took) const {
  std::string counted = ports_.all_trouble();
  if (counted.empty()) counted = "no counter of trouble has moved at this rank's ports";
  // If no rank knows the size of the call, counts the bytes that this rank sends.
  const CallDescriptor what = op.what();
  const std::size_t bytes = by_pairs(what) ? what.count * size_of(what.type) : op.call.total_bytes;
  log().warn("weft: rank {}: {}{} of {} bytes took {} ms: {}", counters_.rank,
             name(what.collective), what.is_vector ? "_v" : "", bytes,
             std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), counted);
}

Status Telemetry::with_counters(const Status& failure) const {
  const bool about_ports = failure.code() == Code::kPeerFailed ||
                           failure.code() == Code::kTimeout || failure.code() == Code::kTransport;
  if (!core_.options.counters || !about_ports) return failure;
  std::string text = failure.message();
  for (const std::string& line : ports_.trouble())
    if (text.find(line.substr(0, line.find(':') + 1)) == std::string::npos)  // already in a verdict
      text += fmt::format("; {}", line);
  return {failure.code(), text.substr(0, kMostText), failure.rank()};
}

void Telemetry::end(std::uint64_t record, bool ok) noexcept {
  if (record & kPart) return;
  recorder_.end(record, ok ? OpState::kDone : OpState::kFailed);
  if (trace_) trace_->end(record, ok);
}

void Telemetry::end(Task& op) noexcept {
  const bool ok = op.status.ok();
  end(op.record, ok);
  if (trace_) trace_->forget_transfers(op.id);
  if (!ok && op.record & kPart) return;
  if (!ok) return counters_.calls[static_cast<std::size_t>(op.what().collective)].failures.add();
  const auto& [algorithm, began_ns] = op.timing;
  const std::uint64_t took_ns = began_ns ? exact_ns() - began_ns : 0;
  if (core_.options.counters && std::chrono::nanoseconds(took_ns) > core_.options.slow)
    slow(op, std::chrono::nanoseconds(took_ns));
  for (const Run::Traffic& t : op.traffic()) {
    Counters::Traffic& to = counters_.traffic(t.link, t.peer);
    to.bytes_sent.add(t.bytes_sent);
    to.bytes_received.add(t.bytes_received);
    to.messages_sent.add(t.messages_sent);
    to.messages_received.add(t.messages_received);
  }
  if (began_ns && algorithm)
    counters_.measured(algorithm->collective, size_class_of(op.call.total_bytes),
                       static_cast<int>(op.group->ranks.size()), algorithm->name,
                       static_cast<double>(took_ns) * 1e-3);
}

void Telemetry::moved_on_board(GroupState& g, Collective c, std::size_t bytes, Rank root) noexcept {
  if (!rooted(c)) {
    if (!g.board_traffic) g.board_traffic = &counters_.board(g.ranks);
    g.board_traffic->messages.add();
    g.board_traffic->bytes.add(bytes);
    return;
  }
  for (std::size_t i = 0; i < g.ranks.size(); ++i) {
    const auto peer = static_cast<Rank>(i);
    if (peer == g.me || (g.me != root && peer != root)) continue;
    Counters::Traffic& t = counters_.traffic(core_.links.shm_link, g.ranks[i]);
    const bool sends = (g.me == root) == from_root(c);
    (sends ? t.messages_sent : t.messages_received).add();
    (sends ? t.bytes_sent : t.bytes_received).add(bytes);
  }
}

// ---- stalls -------------------------------------------------------------------------------

void Telemetry::waiting(std::chrono::nanoseconds idle) noexcept {
  if (idle < kStall) return;
  if (!recorder_.is_stalled()) {
    counters_.stalls.add();
    stalled_at_ = std::chrono::steady_clock::now() - idle;
    settled_ = false;
  } else if (settled_ || idle < kSettled) {
    return;
  }
  settled_ = idle >= kSettled;
  survey();
}

void Telemetry::end_stall() noexcept {
  recorder_.moving();
  const auto stalled = std::chrono::steady_clock::now() - stalled_at_;
  counters_.stalled_ns.add(static_cast<std::uint64_t>(stalled.count()));
}

void Telemetry::survey() {
  const auto in_use =
      core_.links.rails ? core_.links.rails->in_use() : decltype(core_.links.rails->in_use()){};
  std::vector<Recorder::Stalled> stalled;
  for (const Task* op : core_.tasks.all()) {
    Recorder::Stalled s;
    if (!op->survey(s)) continue;
    s.number = op->record & ~kPart;
    if (op->record & kPart) {
      // Of several parts under way, keeps the first, for which the other parts wait.
      const auto known = std::ranges::find(stalled, s.number, &Recorder::Stalled::number);
      if (known != stalled.end() && known->part < s.part) continue;
      if (known != stalled.end()) stalled.erase(known);
    } else {
      s.part = 0;
    }
    for (PeerProgress& p : s.peers) {
      const auto found = in_use.find({op->id, p.peer, p.link - core_.links.first_rail_link});
      if (found == in_use.end()) continue;
      p.sends_on = found->second.sends << core_.links.first_rail_link;
      p.recvs_on = found->second.recvs << core_.links.first_rail_link;
    }
    stalled.push_back(std::move(s));
  }
  recorder_.stalled(stalled);
}

// ---- snapshots and answers -----------------------------------------------------------------

std::string Telemetry::snapshot() {
  std::vector<RankSnapshot> all = recorder_.own_and_mute();
  for (RankSnapshot& t : all)
    if (t.own) t.counters = ports_.trouble();
  return encode(all);
}

bool Telemetry::asked() {
  const book::Page& page = recorder_.page();
  return page.asked.load(std::memory_order_acquire) !=
         page.answered.load(std::memory_order_relaxed);
}

void Telemetry::answer(const std::vector<std::string>& snapshots) {
  book::Page& page = recorder_.page();
  const std::uint64_t asked = page.asked.load(std::memory_order_acquire);
  const std::string text = encode(collect(snapshots));
  answer_ = Fd::from([] { return memfd_create("weft-answer", MFD_CLOEXEC); });
  std::size_t written = 0;
  while (answer_ && written < text.size()) {
    const ssize_t n = write(answer_.get(), text.data() + written, text.size() - written);
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  page.answer_fd.store(answer_.get(), std::memory_order_relaxed);
  page.answer_bytes.store(written == text.size() ? written : 0, std::memory_order_relaxed);
  page.answered.store(asked, std::memory_order_release);
}

void Telemetry::rail_event(const RailEvent& e) noexcept {
  switch (e.kind) {
    case RailEvent::Kind::kOut:
      return counters_.rail_out(e.rail, e.peer, e.cause);
    case RailEvent::Kind::kBack:
      return counters_.rail_back(e.rail, e.peer);
    case RailEvent::Kind::kUnheard:
    case RailEvent::Kind::kHeard:
      return counters_.unheard(e.peer, e.kind == RailEvent::Kind::kUnheard);
    case RailEvent::Kind::kReplay:
      counters_.replayed.add(e.messages);
      counters_.replayed_bytes.add(e.bytes);
  }
}

void Telemetry::beat() {
  on_beat_();
  if (!metrics_file_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - metrics_at_ < kMetricsPeriod) return;
  metrics_at_ = now;
  write_metrics();
}

void Telemetry::write_metrics() noexcept {
  if (metrics_file_) metrics_file_.write(to_prometheus(metrics()));
}

Metrics Telemetry::metrics() const {
  Metrics m = counters_.read();
  for (std::size_t l = 0; l < counters_.links.size(); ++l) {
    const int rail = static_cast<int>(l) - core_.links.first_rail_link;
    if (core_.links.first_rail_link < 0 || rail < 0) continue;
    Metrics::Rail of{counters_.links[l], 0};
    if (core_.links.rails)
      of.bytes_sent = core_.links.rails->sent_bytes(rail);
    else
      for (const Metrics::Traffic& t : m.traffic)
        if (t.link == of.link) of.bytes_sent += t.bytes_sent;
    m.rails.push_back(of);
  }
  return m;
}

Diagnosis Telemetry::diagnose(std::vector<std::string> told, std::vector<Rank> silent) const {
  // If rank 0 or other ranks do not answer, adds the recorders of this machine.
  if (std::ranges::any_of(told, &std::string::empty) || told.empty())
    told.push_back(encode(recorder_.of_this_machine()));
  const Evidence evidence{counters_.size, collect(told), std::move(silent)};
  Diagnosis d = weft::diagnose(evidence);
  if (const char* file = std::getenv("WEFT_DOCTOR_JSON"))
    write_whole(file, to_json(d, evidence) + '\n');
  return d;
}

}  // namespace weft
