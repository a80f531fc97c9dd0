// Creates the book of a machine, writes this rank's page, and reads all pages. diagnosis.cc
// interprets them.
#include "coll/observe/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>

#include "topo/base/log.h"

namespace weft {
namespace {

using book::Page;
using book::Record;
using book::Survey;

// Maximum number of finished operations in a snapshot, which always contains all unfinished ones.
constexpr std::size_t kTold = 12;

// The words of a record that its own writer reads.
constexpr std::size_t kNumber = offsetof(Record, number) / 8, kLast = sizeof(Record) / 8 - 1;
static_assert(offsetof(Record, state) == 8 * kLast + 3 &&
              offsetof(Record, took_ms) == 8 * kLast + 4);
bool under_way(const SeqBox<Record>& box) noexcept {
  return (box.word(kLast) >> 24 & 3) == static_cast<std::uint64_t>(OpState::kStarted);
}

// A resolution of milliseconds is sufficient, and this clock costs only a few loads.
std::uint64_t coarse_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

double seconds_since(std::uint64_t ns, std::uint64_t now) {
  return now > ns ? static_cast<double>(now - ns) * 1e-9 : 0;
}

void copy_name(char (&to)[book::kName], const std::string& from) {
  std::snprintf(to, sizeof to, "%s", from.c_str());
}
std::string text_of(const char (&name)[book::kName]) { return {name, strnlen(name, sizeof name)}; }

CallDescriptor call_of(const Record& r) {
  CallDescriptor c;
  c.comm = r.comm;
  c.leader = r.leader;
  c.members = r.members;
  c.sequence = r.sequence;
  c.collective = static_cast<Collective>(r.collective);
  c.is_vector = r.state & book::kUneven;
  c.lane = r.state & book::kLane;
  c.on_device = r.state & book::kDevice;
  c.replay = r.state & book::kReplay;
  c.message = r.state & book::kMessage;
  c.sends = r.state & book::kSends;
  c.type = static_cast<DType>(r.type);
  c.op = static_cast<RedOp>(r.op & 0xf);
  c.codec = static_cast<Codec>(r.op >> 4);
  c.root = r.root;
  c.set_word(r.count);
  return c;
}

// The message of a rank to the other ranks of its machine.
struct Hello {
  std::int32_t pid, fd;
  std::uint64_t job;
  std::uint64_t traces;
};

std::size_t book_bytes(std::size_t pages) { return book::kHeadBytes + pages * sizeof(Page); }

}  // namespace

Record book::pack(const CallDescriptor& c) noexcept {
  const auto bit = [](bool set, std::uint8_t which) { return set ? which : 0; };
  return {.number = 0,
          .sequence = c.sequence,
          .count = c.word(),
          .start_ns = 0,
          .comm = c.comm,
          .leader = c.leader,
          .members = c.members,
          .root = c.root,
          .collective = static_cast<std::uint8_t>(c.collective),
          .type = static_cast<std::uint8_t>(c.type),
          .op = static_cast<std::uint8_t>(static_cast<int>(c.op) | static_cast<int>(c.codec) << 4),
          .state = static_cast<std::uint8_t>(
              static_cast<int>(OpState::kStarted) | bit(c.lane, book::kLane) |
              bit(c.on_device, book::kDevice) | bit(c.replay, book::kReplay) |
              bit(c.is_vector, book::kUneven) | bit(c.message, book::kMessage) |
              bit(c.sends, book::kSends)),
          .took_ms = 0};
}

BookView::BookView(SharedRegion region) : region_(std::move(region)) {
  const bool large_enough = region_.size() >= book::kHeadBytes;
  if (!large_enough || head().magic.load(std::memory_order_acquire) != book::kMagic ||
      head().page_bytes != sizeof(Page) || head().pages < 0 ||
      region_.size() < book_bytes(static_cast<std::size_t>(head().pages)))
    throw Error("a recorder of another version of weft");
}

const Page& BookView::page(int i) const {
  return reinterpret_cast<const Page*>(region_.data() + book::kHeadBytes)[i];
}
Page& BookView::page(int i) {
  return reinterpret_cast<Page*>(region_.data() + book::kHeadBytes)[i];
}

double BookView::age_s() const { return seconds_since(head().born_ns, coarse_ns()); }

char BookView::state(int i) const {
  const Page& p = page(i);
  const char state = process_state(p.pid, p.born);
  const bool left = p.ready.load(std::memory_order_acquire) == book::kLeft;
  return left && state != 'T' && state != 't' ? 'L' : state;
}

RankSnapshot BookView::read(int i) const {
  const Page& p = page(i);
  RankSnapshot t;
  t.rank = p.rank;
  t.pid = p.pid;
  t.host = text_of(p.host);
  t.machine = text_of(head().machine);
  t.own = p.pid == getpid();
  t.state = state(i);
  const std::uint64_t now = coarse_ns();
  if (const auto since = p.waits_since_ns.load(std::memory_order_acquire))
    t.waits_s = std::max(seconds_since(since, now), 1e-3);
  t.begun = p.begun.load(std::memory_order_acquire);
  for (int l = 0; l < std::min<int>(p.nlinks, book::kLinks); ++l)
    t.links.push_back(text_of(p.link[l]));
  std::map<std::uint64_t, Survey> surveys;
  for (const auto& box : p.surveys) {
    Survey s;
    if (box.load(s) && s.number != 0) surveys[s.number] = s;
  }
  std::vector<const SeqBox<Record>*> boxes;
  for (const auto& box : p.elders) boxes.push_back(&box);
  for (const auto& box : p.records) boxes.push_back(&box);
  for (const auto* box : boxes) {
    Record r;
    if (!box->load(r) || r.number == 0) continue;
    OperationReport o;
    static_cast<CallDescriptor&>(o) = call_of(r);
    o.number = r.number;
    o.state = static_cast<OpState>(r.state & 3);
    o.started_s = seconds_since(r.start_ns, now);
    if (o.state != OpState::kStarted)
      o.ended_s = std::max(0.0, o.started_s - 1e-3 * static_cast<double>(r.took_ms));
    const auto found = surveys.find(o.number);
    if (found != surveys.end() && t.waits_s > 0 && o.state == OpState::kStarted) {
      const Survey& s = found->second;
      o.surveyed = true;
      o.part = s.part;
      o.rounds = s.rounds;
      o.rounds_done = s.rounds_done;
      o.peers.assign(s.peers, s.peers + std::min<std::uint64_t>(s.npeers, book::kPeers));
    }
    t.operations.push_back(std::move(o));
  }
  auto& ops = t.operations;
  std::ranges::sort(ops, {}, &OperationReport::number);
  // Keeps the last operations, the last operation of every communicator, and all unfinished
  // operations.
  std::map<std::pair<std::uint32_t, Rank>, std::uint64_t> last;
  for (const auto& o : ops) last[{o.comm, o.leader}] = o.number;
  const std::uint64_t from = ops.size() > kTold ? ops[ops.size() - kTold].number : 0;
  std::erase_if(ops, [&](const OperationReport& o) {
    return o.state != OpState::kStarted && o.number < from && last[{o.comm, o.leader}] != o.number;
  });
  return t;
}

std::vector<RankSnapshot> BookView::read_all() const {
  std::vector<RankSnapshot> all;
  for (int i = 0; i < pages(); ++i)
    if (page(i).ready.load(std::memory_order_acquire)) all.push_back(read(i));
  return all;
}

std::vector<RankSnapshot> Recorder::own_and_mute() const {
  std::vector<RankSnapshot> all;
  for (int i = 0; i < book_->pages(); ++i) {
    if (!book_->page(i).ready.load(std::memory_order_acquire)) continue;
    if (i != mine_ && std::string_view("TtZXL").find(book_->state(i)) == std::string_view::npos)
      continue;
    all.push_back(book_->read(i));
  }
  return all;
}

Recorder::Recorder(Job& job, const Topology& topology, const std::vector<std::string>& links,
                   bool traces) {
  const Rank me = job.rank();
  const std::string& machine = topology.place(me).machine;
  std::vector<Rank> neighbours;
  for (Rank r = 0; r < job.size(); ++r)
    if (topology.place(r).machine == machine) neighbours.push_back(r);
  const std::size_t pages = neighbours.size();
  const bool first = neighbours[0] == me;

  // The first rank of a machine creates the book; the other ranks open it and keep it open.
  std::unique_ptr<SharedRegion> region;
  const auto make_book = [&] {
    region = std::make_unique<SharedRegion>(
        SharedRegion::create(book_bytes(pages), book::kLabel, SharedRegion::Others::kWrite));
    auto* head = reinterpret_cast<book::Head*>(region->data());
    head->size = job.size();
    head->pages = static_cast<int>(pages);
    head->page_bytes = sizeof(Page);
    head->born_ns = coarse_ns();
    copy_name(head->machine, machine);
    head->magic.store(book::kMagic, std::memory_order_release);
  };
  if (first) make_book();
  std::random_device random;
  const Hello mine{getpid(), first ? region->fd() : -1,
                   me == 0 ? static_cast<std::uint64_t>(random()) << 32 | random() : 0, traces};
  const auto said =
      job.all_gather(std::string_view(reinterpret_cast<const char*>(&mine), sizeof mine));
  const auto hello_of = [&](Rank r) {
    Hello hello;
    const std::string& text = said[static_cast<std::size_t>(r)];
    if (text.size() != sizeof hello)
      throw Error(fmt::format("recorder: rank {} runs another version of weft", r));
    std::memcpy(&hello, text.data(), sizeof hello);
    return hello;
  };
  for (Rank r = 0; r < job.size(); ++r) any_traces_ = any_traces_ || hello_of(r).traces;
  mine_ = static_cast<int>(std::ranges::find(neighbours, me) - neighbours.begin());
  if (!first) {
    const Hello owner = hello_of(neighbours[0]);
    const std::string path = fmt::format("/proc/{}/fd/{}", owner.pid, owner.fd);
    fd_ = Fd::from([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
    if (fd_) {
      region = std::make_unique<SharedRegion>(
          SharedRegion::open(getpid(), fd_.get(), book_bytes(pages), SharedRegion::Others::kWrite));
    } else {
      // Without a shared book, this rank and the machine's other ranks cannot read each other's
      // pages.
      log().info("weft: rank {}: no shared recorder with rank {}: {}: {}", me, neighbours[0], path,
                 strerror(errno));
      make_book();
    }
  }
  // All ranks store the same value.
  reinterpret_cast<book::Head*>(region->data())->job.store(hello_of(0).job);
  const int fd = region->fd() >= 0 ? region->fd() : fd_.get();
  book_ = std::make_unique<BookView>(std::move(*region));
  page_ = &book_->page(mine_);
  page_->rank = me;
  page_->pid = getpid();
  page_->fd = fd;
  page_->born = process_born(getpid());
  copy_name(page_->host, topology.host_name(topology.host(me)));
  page_->nlinks = static_cast<int>(std::min<std::size_t>(links.size(), book::kLinks));
  for (int l = 0; l < page_->nlinks; ++l)
    copy_name(page_->link[l], links[static_cast<std::size_t>(l)]);
  page_->ready.store(book::kReady, std::memory_order_release);
}

std::uint64_t Recorder::begin(const Record& packed, std::uint64_t sequence) noexcept {
  const std::uint64_t number = page_->begun.load(std::memory_order_relaxed) + 1;
  Record o = packed;
  o.number = number;
  o.sequence = sequence;
  o.start_ns = coarse_ns();
  auto& box = page_->records[number % book::kRecords];
  if (under_way(box)) [[unlikely]]
    keep(box);
  box.store(o);
  page_->begun.store(number, std::memory_order_release);
  return number;
}

void Recorder::end(std::uint64_t number, OpState state) noexcept {
  auto* box = &page_->records[number % book::kRecords];
  if (box->word(kNumber) != number) {  // the entry has been reused by later operations
    const auto is_it = [number](const auto& elder) { return elder.word(kNumber) == number; };
    box = std::ranges::find_if(page_->elders, is_it);
    if (box == std::end(page_->elders)) return;
  }
  const std::uint64_t took_ns = coarse_ns() - box->word(offsetof(Record, start_ns) / 8);
  end(*box, state, static_cast<std::uint32_t>(took_ns / 1'000'000));
}

// Saves the record of an unfinished call that `records` is about to overwrite, so that a hang
// report still contains it. If `elders` is full, the record is lost.
void Recorder::keep(const SeqBox<Record>& box) noexcept {
  const auto place = std::ranges::find_if_not(page_->elders, under_way);
  Record r;
  if (place != std::end(page_->elders) && box.load(r)) place->store(r);
}

void Recorder::end_at_once(std::uint64_t number) noexcept {
  end(page_->records[number % book::kRecords], OpState::kDone, 0);
}

void Recorder::end(SeqBox<Record>& box, OpState state, std::uint32_t took_ms) noexcept {
  std::uint64_t word = box.word(kLast);  // state and time
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&word);
  bytes[3] = static_cast<std::uint8_t>((bytes[3] & ~3) | static_cast<int>(state));
  std::memcpy(bytes + 4, &took_ms, sizeof took_ms);
  box.set_word(kLast, word);
}

void Recorder::stalled(const std::vector<Stalled>& operations) noexcept {
  const bool first = !std::exchange(stalled_, true);
  for (std::size_t i = 0; i < book::kSurveys; ++i) {
    Survey s{};
    if (i < operations.size()) {
      const Stalled& o = operations[i];
      s.number = o.number;
      s.part = o.part;
      s.rounds = o.rounds;
      s.rounds_done = o.rounds_done;
      s.npeers = std::min<std::size_t>(o.peers.size(), book::kPeers);
      std::copy_n(o.peers.begin(), s.npeers, s.peers);
    }
    page_->surveys[i].store(s);
  }
  if (first) page_->waits_since_ns.store(coarse_ns(), std::memory_order_release);
}

void Recorder::moving() noexcept {
  stalled_ = false;
  page_->waits_since_ns.store(0, std::memory_order_release);
}

}  // namespace weft
