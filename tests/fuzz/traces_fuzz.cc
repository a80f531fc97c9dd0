// Traces of jobs (perf/replay) from untrusted files: each gives a job that ends, or an Error with
// the reason. Readers neither crash nor use a number without a limit.
// runs: 4000
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "perf/replay/fold.h"
#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace {

using namespace weft::replay;  // NOLINT: the traces

void must(bool holds) {
  if (!holds) std::abort();
}

// Invariants that players of a trace rely on.
void look_at(const JobTrace& trace) {
  must(trace.ranks > 0 && trace.program_of.size() == static_cast<std::size_t>(trace.ranks));
  for (const int p : trace.program_of)
    must(p >= 0 && static_cast<std::size_t>(p) < trace.programs.size());
  for (std::size_t p = 0; p < trace.programs.size(); ++p) {
    const Program& program = trace.programs[p];
    for (std::size_t i = 0; i < program.size(); ++i) {
      const TraceNode& node = program[i];
      for (const int a : node.after) must(a >= 0 && static_cast<std::size_t>(a) < i);
      must(node.compute_us >= 0);
      if (node.kind == NodeKind::kCollective)
        must(node.group >= 0 && static_cast<std::size_t>(node.group) < trace.groups.size() &&
             node.root >= 0 && node.root < trace.ranks);
      else if (node.kind != NodeKind::kCompute)
        must(node.peer >= 0 && node.peer < trace.ranks);
    }
  }
}

void read_as(const std::vector<TraceFile>& files) {
  try {
    const JobTrace trace = read_files(files);
    look_at(trace);
    if (trace.ranks < 64) look_at(fold(trace, 2));
  } catch (const weft::Error& e) {
    must(*e.what() != 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<TraceFile> files;
  try {
    files = unpack_trace("t.0.et", std::string(reinterpret_cast<const char*>(data), size));
  } catch (const weft::Error& e) {
    must(*e.what() != 0);
    return 0;
  }
  read_as(files);
  // Two ranks with the same trace: calls match, messages find no partner.
  if (files.size() == 1) {
    files.push_back(files[0]);
    files[1].name = "t.1.et";
    files[1].rank = 1;
    read_as(files);
  }
  return 0;
}
