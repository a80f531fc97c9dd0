#include "coll/watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "coll/core.h"
#include "coll/diagnosis.h"

namespace weft {
namespace {

// Who waits for less is not worth a look: a slow slice, a descheduled peer.
constexpr std::chrono::milliseconds kStall{5};

// How long a verdict waits for the ranks to tell; from when on a rank counts as silent; and how
// much text goes with a failure.
constexpr std::chrono::milliseconds kInquiry{1500}, kSilence{100};
constexpr std::size_t kMostText = 690;

std::vector<std::string> link_names(const Core& core) {
  std::vector<std::string> names;
  for (int l = 0; l < static_cast<int>(core.links.size()); ++l) {
    if (l == core.shm_link) {
      names.emplace_back("shm");
      continue;
    }
    const auto rail = static_cast<std::size_t>(l - core.first_rail_link);
    const auto& rails = core.topology->place(core.job->rank()).rails;
    names.push_back(rail < rails.size() ? fmt::format("rail {} ({})", rail, rails[rail].name)
                                        : fmt::format("rail {}", rail));
  }
  return names;
}

book::Record record_of(const GroupState& g) {
  book::Record o{};
  o.comm = g.id;
  o.leader = g.ranks.front();
  o.members = static_cast<std::int32_t>(g.ranks.size());
  o.state = static_cast<std::uint8_t>(OpState::kStarted);
  return o;
}

}  // namespace

Watch::Watch(Core& core)
    : core_(core), job_(core.job.get()), recorder_(*job_, *core.topology, link_names(core)) {
  job_->set_witness(this);
}

Watch::~Watch() { left(); }

void Watch::left() noexcept {
  if (job_) job_->set_witness(nullptr);
  job_ = nullptr;
}

std::uint64_t Watch::begin(const GroupState& g, Collective c, const Call& call, Rank root,
                           std::uint64_t sequence) noexcept {
  book::Record o = record_of(g);
  o.sequence = sequence;
  o.count = call.count;
  o.collective = static_cast<std::uint8_t>(c);
  o.type = static_cast<std::uint8_t>(call.type);
  o.op = static_cast<std::uint8_t>(call.op);
  o.root = root;
  return recorder_.begin(o);
}

std::uint64_t Watch::begin_message(const GroupState& g, bool send, std::size_t bytes, Rank peer,
                                   std::uint64_t sequence) noexcept {
  book::Record o = record_of(g);
  o.sequence = sequence;
  o.count = bytes;
  o.collective = static_cast<std::uint8_t>(Collective::kSendRecv);
  o.state |= book::kMessage;
  if (send) o.state |= book::kSends;
  o.root = g.ranks[static_cast<std::size_t>(peer)];
  return recorder_.begin(o);
}

void Watch::end(const Operation& op) noexcept {
  recorder_.end(op.record, op.status.ok() ? OpState::kDone : OpState::kFailed);
}

void Watch::waiting(std::chrono::nanoseconds idle) noexcept {
  if (idle < kStall || recorder_.is_stalled()) return;
  survey();
}

void Watch::polled(bool moved) noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (moved) {
    moved_at_ = now;
    moving();
  } else {
    waiting(now - moved_at_);
  }
}

// ---- for others ----------------------------------------------------------------------------

std::string Watch::testimony() { return encode(recorder_.own_and_mute()); }

bool Watch::asked() {
  const book::Page& page = recorder_.page();
  return page.asked.load(std::memory_order_acquire) !=
         page.answered.load(std::memory_order_relaxed);
}

void Watch::answer(const std::vector<std::string>& testimonies) {
  book::Page& page = recorder_.page();
  const std::uint64_t asked = page.asked.load(std::memory_order_acquire);
  const std::string text = encode(collect(testimonies));
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

namespace {

// Those who look for the file find all of it or none.
void write_whole(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  std::ofstream file(fresh);
  file << text << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(fresh, path, error);
  if (!file || error) spdlog::error("weft: cannot write {}", path);
}

}  // namespace

Status Watch::verdict(const std::string& what) {
  survey();
  const std::vector<std::string> told = job_->inquire(kInquiry);
  if (job_->failed()) return job_->failure();
  std::vector<std::string> texts = told;
  // Where rank 0 does not answer: what can be seen from here.
  if (std::ranges::any_of(told, &std::string::empty) || told.empty())
    texts.push_back(encode(recorder_.of_this_machine()));
  Evidence evidence{job_->size(), collect(texts), {}};
  const auto age = std::max<std::chrono::milliseconds>(core_.options.timeout / 2, kSilence);
  evidence.silent = job_->silent(age);
  const Diagnosis d = diagnose(evidence);
  if (const char* file = std::getenv("WEFT_DOCTOR_JSON")) write_whole(file, to_json(d, evidence));
  if (d.cause == Cause::kNone || d.cause == Cause::kUnknown) return {};
  return {code_of(d.cause), fmt::format("{}: {}", what, d.text).substr(0, kMostText), d.rank};
}

// ---- how far operations are ----------------------------------------------------------------

void Watch::survey() {
  std::vector<Recorder::Stalled> stalled;
  for (const Operation* op : core_.active) {
    Recorder::Stalled s;
    s.number = op->record;
    if (op->kind == Operation::Kind::kPlan) {
      s.rounds = op->run.rounds();
      s.rounds_done = op->run.rounds_done();
      s.peers = op->run.survey();
    } else {
      PeerProgress p;
      p.peer = op->group->ranks[static_cast<std::size_t>(op->root)];
      p.link = core_.link_of(core_.job->rank(), p.peer);
      (op->sends ? p.sends_posted : p.recvs_posted) = 1;
      s.peers.push_back(p);
    }
    stalled.push_back(std::move(s));
  }
  for (const GroupState* g : core_.boards_busy) {
    if (g->board_queue.empty()) continue;
    Recorder::Stalled s;
    s.number = g->board_queue.front()->record;
    s.rounds = 1;
    for (const bool missing : {true, false})
      for (std::size_t i = 0; i < g->ranks.size(); ++i) {
        if (static_cast<Rank>(i) == g->me) continue;
        const bool here = g->board->read(static_cast<int>(i), g->board_round) != nullptr;
        if (here == missing) continue;
        PeerProgress p;
        p.peer = g->ranks[i];
        p.sends_posted = p.sends_done = p.recvs_posted = 1;
        p.recvs_done = here;
        s.peers.push_back(p);
      }
    stalled.push_back(std::move(s));
  }
  recorder_.stalled(stalled);
}

}  // namespace weft
