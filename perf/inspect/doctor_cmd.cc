// `weft doctor`: shows each rank's call in running jobs, and the rank for which it waits. Runs
// outside of the jobs: finds the recorders of this user's jobs through /proc, queries the control
// plane of each job for the state of all ranks, and reads the recorders of this host directly.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "coll/jobs/report.h"
#include "coll/observe/diagnosis.h"
#include "coll/observe/recorder.h"
#include "perf/cli/commands.h"
#include "perf/cli/table.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A heartbeat interval until the request is noticed, the inquiry, and a margin.
constexpr std::chrono::milliseconds kAnswerTime{4000};
constexpr int kAsked = 2;  // ranks, in turn

struct Arguments {
  int pid = 0;
  std::string job;
  std::string json;
  double after_s = 5;
};

struct FoundJob {
  std::uint64_t id = 0;
  std::vector<int> pids;                             // processes with an open book of the job
  std::map<ino_t, std::unique_ptr<BookView>> books;  // on this machine; usually one
};

// Skips processes of other users and processes that exit meanwhile.
std::map<std::uint64_t, FoundJob> find_jobs() {
  std::map<std::uint64_t, FoundJob> jobs;
  std::map<ino_t, std::uint64_t> job_of;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename();
    int pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    for (fs::directory_iterator fd(process.path() / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
      std::error_code gone;
      const std::string target = fs::read_symlink(fd->path(), gone);
      if (gone || !target.starts_with(fmt::format("/memfd:{}", book::kLabel))) continue;
      struct stat status {};
      if (stat(fd->path().c_str(), &status) != 0) continue;
      if (!job_of.contains(status.st_ino)) try {
          const int number = std::stoi(fd->path().filename());
          auto view = std::make_unique<BookView>(SharedRegion::open(
              pid, number, static_cast<std::size_t>(status.st_size), SharedRegion::Others::kWrite));
          const std::uint64_t id = view->job();
          if (id == 0) continue;  // the job is still starting
          job_of[status.st_ino] = id;
          jobs[id].id = id;
          jobs[id].books[status.st_ino] = std::move(view);
        } catch (const Error&) {
          continue;
        }
      auto& pids = jobs[job_of[status.st_ino]].pids;
      if (std::ranges::count(pids, pid) == 0) pids.push_back(pid);
    }
  }
  return jobs;
}

// Makes a rank's control thread gather the state of all ranks. Returns "" on timeout.
std::string ask(book::Page& page) {
  const std::uint64_t number = page.answered.load() + 1;
  page.asked.store(number);
  const auto until = Clock::now() + kAnswerTime;
  while (page.answered.load(std::memory_order_acquire) < number) {
    if (Clock::now() > until) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream file(fmt::format("/proc/{}/fd/{}", page.pid, page.answer_fd.load()));
  std::string text(page.answer_bytes.load(), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return file ? text : std::string{};
}

struct Examined {
  Evidence evidence;
  Diagnosis diagnosis;
  bool reached = false;  // the control plane answered
};

Examined examine(FoundJob& job) {
  Examined e;
  std::vector<std::string> texts;
  int tries = 0;
  for (auto& [inode, view] : job.books) {
    e.evidence.size = view->size();
    for (int i = 0; i < view->pages() && tries < kAsked && texts.empty(); ++i) {
      book::Page& page = view->page(i);
      if (page.ready.load(std::memory_order_acquire) != book::kReady) continue;
      if (std::string_view("RSD").find(view->state(i)) == std::string_view::npos) continue;
      ++tries;
      const std::string told = ask(page);
      if (!told.empty()) texts.push_back(told);
    }
  }
  e.reached = !texts.empty();
  for (auto& [inode, view] : job.books) texts.push_back(encode(view->read_all()));
  e.evidence.ranks = collect(texts);
  // Control threads answer even if the program is blocked, so missing ranks are unresponsive.
  for (Rank r = 0; e.reached && r < e.evidence.size; ++r)
    if (std::ranges::none_of(e.evidence.ranks, [&](const auto& t) { return t.rank == r; }))
      e.evidence.silent.push_back(r);
  e.diagnosis = diagnose(e.evidence);
  return e;
}

bool critical(const Diagnosis& d, double after_s) {
  return d.cause == Cause::kDead || d.cause == Cause::kStopped ||
         (d.cause != Cause::kNone && d.waited_s >= after_s);
}

// Table cells: the current call of a rank, and the peers for which it waits.
std::vector<std::string> cells_of(const RankSnapshot& t) {
  std::string call = "no call yet", time, peers;
  const OperationReport* shown = nullptr;
  for (const OperationReport& o : t.operations)
    if (o.state == OpState::kStarted && (!shown || (o.surveyed && !shown->surveyed))) shown = &o;
  if (!shown && !t.operations.empty()) shown = &t.operations.back();
  if (shown) {
    const bool under_way = shown->state == OpState::kStarted;
    call = fmt::format("{} ({})", title(*shown), arguments(*shown));
    if (shown->surveyed && shown->rounds > 1)
      call += fmt::format(", round {} of {}", shown->rounds_done + 1, shown->rounds);
    time = under_way ? fmt::format("for {}", seconds(shown->started_s))
                     : fmt::format("{} {} ago", name(shown->state), seconds(shown->ended_s));
    for (const PeerProgress& p : shown->peers) {
      if (!p.receives() && !p.sends()) continue;
      const auto link = static_cast<std::size_t>(p.link);
      peers += fmt::format("{} {} ({})", peers.empty() ? "; waits for rank" : ",", p.peer,
                           p.link >= 0 && link < t.links.size() ? t.links[link] : "shm");
    }
  }
  return {fmt::format("  rank {}", t.rank), t.host, fmt::format("pid {}", t.pid),
          fmt::format("{}", t.state), fmt::format("{}: {}{}", call, time, peers)};
}

void print(const FoundJob& job, const Examined& e, bool bad) {
  fmt::print("job {:016x}: {} ranks{}\n", job.id, e.evidence.size,
             e.reached ? "" : "; its control plane does not respond: only facts of this host");
  std::set<std::string> counters;  // ranks of a host have the same port counters
  std::vector<std::vector<std::string>> rows;
  for (const RankSnapshot& t : e.evidence.ranks) {
    rows.push_back(cells_of(t));
    counters.insert(t.counters.begin(), t.counters.end());
  }
  fmt::print("{}", align(rows));
  for (const std::string& line : counters)
    fmt::print("  {}\n", wrapped(line, kColumns - 2, "    "));
  for (const Rank r : e.evidence.silent) fmt::print("  rank {} does not answer\n", r);
  const Diagnosis& d = e.diagnosis;
  if (d.cause == Cause::kNone) {
    fmt::print("OK: {}\n", d.text);
  } else {
    const std::string verdict =
        fmt::format("{}: {}; others have waited for {}", bad ? "CRITICAL" : "OK so far", d.text,
                    seconds(d.waited_s));
    fmt::print("{}\n", wrapped(verdict, kColumns, "  "));
  }
}

int doctor(const Arguments& a) {
  check_report(a.json);
  auto jobs = find_jobs();
  std::erase_if(jobs, [&](const auto& item) {
    const FoundJob& job = item.second;
    if (a.pid && std::ranges::count(job.pids, a.pid) == 0) return true;
    return !a.job.empty() && !fmt::format("{:016x}", job.id).starts_with(a.job);
  });
  auto all = nlohmann::ordered_json::array();
  int code = kExitOk;
  for (auto& [id, job] : jobs) {
    const Examined e = examine(job);
    const bool bad = critical(e.diagnosis, a.after_s);
    if (bad) code = kExitCritical;
    if (!a.json.empty()) {
      auto report = nlohmann::ordered_json::parse(to_json(e.diagnosis, e.evidence));
      report["job"] = fmt::format("{:016x}", id);
      report["critical"] = bad;
      report["control_plane"] = e.reached;
      all.push_back(std::move(report));
    }
    if (a.json != "-") print(job, e, bad);
  }
  if (!a.json.empty()) write_report(a.json, all.dump(1) + "\n");
  if (jobs.empty()) {
    const bool chosen = a.pid || !a.job.empty();
    std::fprintf(
        stderr, "weft doctor: %s\n",
        chosen ? "no such job of this user on this host; without --pid and --job it shows all jobs"
               : "no job of weft by this user runs on this host");
    return kExitUnknown;
  }
  return code;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("doctor", "show what the ranks of running jobs do, and why they wait");
  const auto a = std::make_shared<Arguments>();
  command->add_option("--pid", a->pid, "only the job of this process")->check(CLI::PositiveNumber);
  command->add_option("--job", a->job, "only this job: its number, or how it begins");
  add_json_option(*command, a->json, "weft.doctor/1, an array: a job each");
  command
      ->add_option("--after-s", a->after_s,
                   "report a hang after this many seconds of waiting; a dead rank, or a stopped "
                   "one that others wait for, is always a hang")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->footer("Example: weft doctor --after-s 1");
  command->callback([a, &exit_code] { exit_code = doctor(*a); });
}

}  // namespace weft
