// Recognizes formats by first bytes or keys. Reads no traces.
#include "perf/replay/formats/recognize.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

namespace weft::replay {
namespace {

// Collects the keys of a JSON text's outermost object, or of the first object of its outermost
// list, even if the text is damaged after them.
class Keys : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::set<std::string> found;

  // Stops parsing at a key that decides the format, since traces are long.
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    found.insert(name);
    return name != "nodes" && name != "workload_graph" && name != "traceEvents";
  }
  bool start_object(std::size_t) override {
    ++depth_;
    return true;
  }
  // The first object of a list is enough.
  bool end_object() override { return --depth_ > 0; }
  bool start_array(std::size_t) override {
    if (depth_ > 0) ++depth_;
    return true;
  }
  bool end_array() override {
    if (depth_ > 0) --depth_;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  int depth_ = 0;
};

constexpr const char* kExecutionTrace =
    "give the execution trace, which torch.profiler.ExecutionTraceObserver writes beside it "
    "(register_callback(\"et.0.json\"), start(), stop())";

Recognized recognize_json(std::string_view bytes) {
  Keys keys;
  (void)nlohmann::json::sax_parse(bytes.begin(), bytes.end(), &keys);
  const auto has = [&](const char* key) { return keys.found.contains(key); };
  if (has("workload_graph")) return {Format::kChakraJson, ""};
  if (has("nodes")) return {Format::kParam, ""};
  if (has("traceEvents") && bytes.find("\"weft.trace/1\"") != bytes.npos)
    return {Format::kNone,
            "a trace of weft's for Perfetto, which lacks computations; give the Chakra traces "
            "that `weft train --trace run.json` writes beside it (run.0.et, run.1.et, ...)"};
  if (has("traceEvents"))
    return {Format::kNone, std::string("a Kineto profile (of torch.profiler or Chrome), which has "
                                       "times and not all sizes and groups; ") +
                               kExecutionTrace};
  if (has("entries") || has("pg_config") || has("nccl_comm_state"))
    return {Format::kNone, std::string("a dump of PyTorch's flight recorder, which holds the last "
                                       "calls of a job and no computation; ") +
                               kExecutionTrace};
  if (has("nccl_version") || (has("results") && has("config")))
    return {Format::kNone,
            "results of nccl-tests, which are of calls alone and not of a job; `weft perf` runs "
            "the same calls, and a job's trace is what its framework writes (docs/replay.md)"};
  if (has("schema")) return {Format::kParam, ""};  // its reader checks the schema
  return {Format::kNone, "JSON without \"nodes\" (PyTorch, PARAM) or \"workload_graph\" (Chakra)"};
}

// Python pickles begin with their protocol version, 2 to 5.
bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

bool is_text(std::string_view bytes) {
  return std::ranges::all_of(bytes.substr(0, 16),
                             [](unsigned char c) { return std::isprint(c) || std::isspace(c); });
}

}  // namespace

Recognized recognize(std::string_view bytes) {
  const auto first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos) return {Format::kNone, "empty"};
  const std::string_view text = bytes.substr(first);
  if (text[0] == '{' || text[0] == '[') return recognize_json(text);
  if (is_pickle(bytes))
    return {Format::kNone, std::string("a pickle, as PyTorch's flight recorder dumps, which hold "
                                       "the last calls of a job and no computation; ") +
                               kExecutionTrace};
  if (!is_text(bytes)) return {Format::kChakra, ""};
  for (const char* start : {"num_ranks", "rank ", "//", "/*"})
    if (text.starts_with(start)) return {Format::kGoal, ""};
  const auto word = text.substr(0, text.find_first_of(" \t\r\n"));
  const bool policy = std::ranges::all_of(
      word, [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
  if (policy) return {Format::kSimai, ""};
  if (text.find("nThread") != text.npos || text.find("nccl-tests") != text.npos)
    return {Format::kNone,
            "output of nccl-tests, which is of calls alone and not of a job; `weft perf` runs the "
            "same calls"};
  if (text.find("NCCL INFO") != text.npos)
    return {Format::kNone, "a log of NCCL, which has no computation and no order of waits; " +
                               std::string(kExecutionTrace)};
  return {Format::kNone,
          "not a trace that weft supports: it reads Chakra (.et or JSON), PyTorch's execution "
          "traces, SimAI workloads and GOAL"};
}

}  // namespace weft::replay
