// Collects the events of a rank, aligns its clock with rank 0's, and writes the trace. The runtime
// reports the operations.
#include "coll/observe/trace.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "coll/engine/engine.h"
#include "topo/base/log.h"
#include "transport/decorator.h"

namespace weft {
namespace {

// Limit of about 200 MB; later events are counted and dropped.
constexpr std::size_t kMostEvents = 3'000'000;
constexpr int kAlignments = 8;

// Escapes a JSON string. The name of a host contains no control characters.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

double us(std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

const char* verb(Transfer::Kind kind) { return kind == Transfer::Kind::kSend ? "send" : "recv"; }

const char* verb_of(const CallDescriptor& call) {
  return call.message ? call.sends ? "send" : "recv" : name(call.collective);
}

// Events of a track must not overlap: each event is assigned to the first of several tracks that is
// free.
class Tracks {
 public:
  std::size_t place(std::uint64_t begin, std::uint64_t end) {
    std::size_t i = 0;
    while (i < busy_until_.size() && busy_until_[i] > begin) ++i;
    if (i == busy_until_.size()) busy_until_.push_back(0);
    busy_until_[i] = end;
    return i;
  }

 private:
  std::vector<std::uint64_t> busy_until_;
};

}  // namespace

class Trace::Traced final : public Decorator {
 public:
  Traced(Trace& trace, std::unique_ptr<Transport> inner, int link)
      : Decorator(std::move(inner)), trace_(trace), link_(link) {}

  void post(std::span<const Transfer> transfers) noexcept override {
    const std::uint64_t now = now_ns();
    for (const Transfer& t : transfers) open_[t.id] = {now, t.bytes, t.tag, t.peer, t.kind};
    Decorator::post(transfers);
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    const std::size_t n = Decorator::poll(out);
    if (n == 0) return 0;
    const std::uint64_t now = now_ns();
    for (std::size_t i = 0; i < n; ++i) {
      const auto found = open_.find(out[i].id);
      if (found == open_.end()) continue;
      const Open& o = found->second;
      const auto number = trace_.number_of_.find(static_cast<std::uint32_t>(out[i].id >> 32));
      // The round is stored in the bits above channel and step.
      trace_.add({o.begin_ns, now, o.bytes, number == trace_.number_of_.end() ? 0 : number->second,
                  static_cast<std::uint32_t>(o.tag) & ((1u << (kRoundBits + kOrdinalBits)) - 1),
                  o.peer, static_cast<std::int16_t>(link_), o.kind, out[i].code == Code::kOk});
      open_.erase(found);
    }
    return n;
  }
  void cancel(std::uint32_t id_high) noexcept override {
    Decorator::cancel(id_high);
    std::erase_if(open_, [&](const auto& item) { return item.first >> 32 == id_high; });
  }
  DeviceMemory* device_memory() noexcept override { return inner_->device_memory(); }

 private:
  struct Open {
    std::uint64_t begin_ns, bytes, tag;
    Rank peer;
    Transfer::Kind kind;
  };
  Trace& trace_;
  int link_;
  std::unordered_map<std::uint64_t, Open> open_;
};

Trace::Trace(std::string path, Rank rank, std::string host, std::vector<std::string> links)
    : path_(std::move(path)), host_(std::move(host)), rank_(rank), links_(std::move(links)) {}

std::unique_ptr<Transport> Trace::wrap(std::unique_ptr<Transport> inner, int link) {
  return std::make_unique<Traced>(*this, std::move(inner), link);
}

void Trace::add(const Event& event) {
  if (events_.size() < kMostEvents)
    events_.push_back(event);
  else
    ++dropped_;
}

void Trace::begin(std::uint64_t number, const CallDescriptor& call) {
  if (path_.empty()) return;
  if (calls_.size() >= kMostEvents) {
    ++dropped_;
    return;
  }
  open_[number] = calls_.size();
  calls_.push_back({call, number, now_ns(), 0, false});
}

void Trace::end(std::uint64_t number, bool ok) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  calls_[found->second].end_ns = now_ns();
  calls_[found->second].ok = ok;
  open_.erase(found);
}

// No rank leaves an all_gather before all ranks have entered it, so each round gives two bounds.
void Trace::align(Job& job) {
  std::uint64_t entered = 0, left = 0;
  for (int i = 0; i <= kAlignments; ++i) {
    const std::uint64_t now = now_ns();
    const auto said = job.all_gather(fmt::format("{} {} {}", now, entered, left));
    const std::uint64_t out = now_ns();
    job_ranks_ = said.size();
    std::uint64_t root[3] = {};
    const char *at = said[0].data(), *end = at + said[0].size();
    for (std::uint64_t& value : root) {
      at = std::from_chars(at, end, value).ptr;
      if (at != end) ++at;
    }
    if (job_ == 0) job_ = root[0];
    // Rank 0 entered this round before this rank left it, and left the previous round after this
    // rank had entered that one.
    offset_high_ = std::min(offset_high_, static_cast<std::int64_t>(out - root[0]));
    if (i > 0) offset_low_ = std::max(offset_low_, static_cast<std::int64_t>(entered - root[2]));
    entered = now;
    left = out;
  }
}

void Trace::write() const noexcept {
  if (path_.empty()) return;
  std::FILE* file = std::fopen(path_.c_str(), "w");
  if (!file) {
    log().error("weft: cannot write the trace {}: {}", path_, std::strerror(errno));
    return;
  }
  bool written = true;
  try {
    write(file);
  } catch (const std::exception&) {
    written = false;
  }
  if (std::fclose(file) != 0 || !written)
    log().error("weft: cannot write the trace {}: is its disk full?", path_);
}

void Trace::write(std::FILE* file) const {
  fmt::print(file, "{{\"traceEvents\":[\n");
  fmt::print(file,
             "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {0} "
             "on {1}\"}}}}",
             rank_, escaped(host_));
  std::map<int, std::string> tracks;
  const auto track = [&](int tid, const std::string& name) {
    if (!tracks.emplace(tid, name).second) return;
    fmt::print(file,
               ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{"
               "\"name\":\"{}\"}}}}",
               rank_, tid, name);
  };
  std::unordered_map<std::uint64_t, std::string> titles;
  const std::uint64_t now = now_ns();
  Tracks operations;
  for (const Call& c : calls_) {
    const std::uint64_t end = c.end_ns ? c.end_ns : now;
    const auto place = static_cast<int>(operations.place(c.begin_ns, end));
    track(place, place ? fmt::format("operations ({})", place) : "operations");
    const std::string& name = titles[c.number] = title(c.what);
    fmt::print(file,
               ",\n{{\"ph\":\"X\",\"cat\":\"operation\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
               "\"dur\":{:.3f},\"name\":\"{}\",\"args\":{{\"communicator\":{},\"leader\":{},"
               "\"members\":{},\"collective\":\"{}\",\"type\":\"{}\",\"root\":{},\"uneven\":{},"
               "\"arguments\":\"{}\",\"bytes\":{},\"ok\":{}}}}}",
               rank_, place, us(c.begin_ns), us(end - c.begin_ns), name, c.what.comm, c.what.leader,
               c.what.members, verb_of(c.what), weft::name(c.what.type), c.what.root,
               c.what.is_vector, arguments(c.what),
               c.what.count * (c.what.message ? 1 : size_of(c.what.type)), c.ok);
  }
  auto events = events_;
  std::ranges::stable_sort(events, {}, &Event::begin_ns);
  std::map<std::pair<int, bool>, Tracks> links;
  for (const Event& e : events) {
    const bool send = e.kind == Transfer::Kind::kSend;
    const auto place = static_cast<int>(links[{e.link, send}].place(e.begin_ns, e.end_ns));
    const int tid = 1000 * (2 * e.link + (send ? 2 : 3)) + place;
    track(tid, fmt::format("{} {}{}", links_[static_cast<std::size_t>(e.link)], verb(e.kind),
                           place ? fmt::format(" ({})", place) : ""));
    const auto name = titles.find(e.number);
    fmt::print(file,
               ",\n{{\"ph\":\"X\",\"cat\":\"transfer\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
               "\"dur\":{:.3f},\"name\":\"{} {}\",\"args\":{{\"peer\":{},\"bytes\":{},"
               "\"link\":\"{}\",\"round\":{},\"channel\":{},\"step\":{},\"operation\":\"{}\","
               "\"ok\":{}}}}}",
               rank_, tid, us(e.begin_ns), us(e.end_ns - e.begin_ns), verb(e.kind), e.peer, e.peer,
               e.bytes, links_[static_cast<std::size_t>(e.link)], e.round >> kOrdinalBits,
               (e.round & ((1u << kOrdinalBits) - 1)) >> kChannelShift,
               e.round & ((1u << kChannelShift) - 1), name == titles.end() ? "" : name->second,
               e.ok);
  }
  const bool known = offset_low_ > INT64_MIN / 8 && offset_high_ < INT64_MAX / 8;
  const double offset = known ? static_cast<double>(offset_low_ + offset_high_) / 2e3 : 0;
  const double uncertain = known ? static_cast<double>(offset_high_ - offset_low_) / 2e3 : -1;
  std::string named;
  for (const Named& c : communicators_)
    named += fmt::format("{}{{\"communicator\":{},\"name\":\"{}\",\"ranks\":[{}]}}",
                         named.empty() ? "" : ",", c.id, escaped(c.name), fmt::join(c.ranks, ","));
  fmt::print(file,
             "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{{\"schema\":\"weft.trace/1\","
             "\"rank\":{},\"ranks\":{},\"job\":{},\"clock_ahead_us\":{:.3f},"
             "\"clock_uncertain_us\":{:.3f},\"communicators\":[{}],\"dropped\":{}}}}}\n",
             rank_, job_ranks_, job_, offset, uncertain, named, dropped_);
}

namespace {

std::string with_suffix(const std::string& path, const std::string& suffix) {
  std::filesystem::path name(path);
  const std::string extension = name.extension();
  name.replace_extension(suffix + extension);
  return name;
}

}  // namespace

std::string file_of_rank(const std::string& path, Rank rank) {
  return with_suffix(path, fmt::format(".rank{}", rank));
}

std::string file_after_shrink(const std::string& path, int times) {
  return with_suffix(path, fmt::format(".shrunk{}", times));
}

}  // namespace weft
