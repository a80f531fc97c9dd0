// Texts from people, launchers, files and other ranks: each gives a value or an Error; parsed
// values survive encoding and parsing again. The first byte of an input selects the parser of the
// rest.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "coll/observe/diagnosis.h"
#include "coll/observe/rank_snapshot.h"
#include "coll/runtime/calibrate.h"
#include "coll/select/profile.h"
#include "coll/types.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "perf/validate/facts/facts.h"
#include "topo/discover.h"
#include "topo/topology.h"
#include "transport/fault.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/failures.h"

namespace {

using namespace weft;

void require(bool truth) {
  if (!truth) std::abort();
}

template <class F>
auto tried(F f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A launcher's environment: lines of a letter, which selects the variable, and its value.
void environment(const std::string& text) {
  constexpr std::array kVariables = {"WEFT_RANK",   "WEFT_SIZE",          "WEFT_ROOT",
                                     "WEFT_SECRET", "WEFT_ROOT_FD",       "WEFT_TIMEOUT_MS",
                                     "RANK",        "WORLD_SIZE",         "MASTER_ADDR",
                                     "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
  for (const char* variable : kVariables) unsetenv(variable);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const auto which = static_cast<unsigned char>(line[0] - 'a') % kVariables.size();
    setenv(kVariables[which], std::string(line.substr(1)).c_str(), 1);
  }
  const auto spec = tried([] { return job_from_environment(); });
  if (!spec) return;
  require(spec->size >= 1 && spec->rank >= 0 && spec->rank < spec->size);
  require(spec->timeout.count() > 0);
  if (spec->size > 1)
    require(!spec->address.empty() && !spec->ports.empty() && !spec->secret.empty());
  for (const std::uint16_t port : spec->ports) require(port != 0);
}

// Facts that other ranks report about their hosts.
void facts(const std::string& text) {
  using namespace weft::fabric;
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) return;
  if (const auto once = tried([&] { return to_json(host_facts_from_json(json)); }))
    require(to_json(host_facts_from_json(*once)) == *once);
}

// WEFT_FAULT.
void fault(const std::string& text) {
  if (const auto f = tried([&] { return fault_from(text); }))
    require(f->nth >= 1 && f->rank >= kNoRank && f->rail >= -1);
}

// A topology of places from other ranks must answer all queries.
void place(const std::string& text) {
  (void)tried([&] {
    const Place place = decode_place(text);
    require(encode(decode_place(encode(place))) == encode(place));
    Place other = place;
    other.host += "'";
    const Topology topology({place, place, other});
    for (Rank r = 0; r < topology.nranks(); ++r) {
      require(topology.host(r) >= 0 && topology.host(r) < topology.nhosts());
      require(topology.rail(r) >= 0 && topology.rail(r) < topology.nrails());
    }
    return 0;
  });
}

void profile(const std::string& text) {
  if (const auto p = tried([&] { return Profile::parse(text).text(); }))
    require(Profile::parse(*p).text() == *p);
}

// WEFT_RAILS.
void rails(const std::string& text) {
  HostDescription host;
  for (const char* name : {"mlx5_0", "mlx5_1", "eth0", "rail0", "lo"}) {
    host.nics.emplace_back();
    host.nics.back().name = host.nics.back().netdev = name;
    host.nics.back().rdma = std::string_view(name).starts_with("mlx5");
    host.nics.back().up = true;
  }
  setenv("WEFT_RAILS", text.c_str(), 1);
  const auto chosen = tried([&] { return choose_rails(host); });
  if (!chosen) return;
  require(!chosen->empty() && chosen->size() <= host.nics.size());
  for (const Nic& rail : *chosen)
    require(!rail.name.empty() && std::isfinite(rail.rate_gbps) && rail.rate_gbps >= 0);
}

// Snapshots of ranks can be encoded again, and diagnosed.
void snapshot(const std::string& text) {
  if (const auto told = tried([&] { return encode(decode_snapshot(text)); }))
    require(encode(decode_snapshot(*told)) == *told);
  const auto all = collect({text, "[" + text + "]"});
  require(encode(collect({encode(all)})) == encode(all));
  const Evidence evidence{4, all, {}};
  const Diagnosis d = diagnose(evidence);
  require(!d.text.empty() && !to_json(d, evidence).empty());
}

// Command line arguments: sizes, ladders of sizes, names and rates.
void words(const std::string& text) {
  if (const auto bytes = tried([&] { return parse_bytes("-b", text); })) {
    require(*bytes > 0);
    require(parse_bytes("-b", format_bytes(*bytes)) == *bytes);
    for (const std::uint64_t end : {*bytes, ~std::uint64_t{0}}) {
      const auto ladder = size_ladder(*bytes, end, 2 + *bytes % 3);
      require(ladder.front() == *bytes && ladder.back() <= end && ladder.size() <= 64);
    }
  }
  if (const auto c = tried([&] { return collective_named(text); }))
    require(collective_named(name(*c)) == *c);
  if (const auto t = dtype_from(text)) require(dtype_from(name(*t)) == t);
  if (const auto o = redop_from(text)) require(redop_from(name(*o)) == o);
  if (const auto all = tried([&] { return dtypes_named("-d", text); })) require(!all->empty());
  if (const auto all = tried([&] { return redops_named("-o", text); })) require(!all->empty());
  (void)tried([&] { return check_algorithm(Collective::kAllReduce, text), 0; });
  setenv("WEFT_RAIL_GBPS", text.c_str(), 1);
  if (const auto gbps = tried([] { return declared_rail_gbps(0); }))
    require(std::isfinite(*gbps) && *gbps >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array kReaders = {environment, facts, fault,    place,
                                   profile,     rails, snapshot, words};
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  kReaders[data[0] % kReaders.size()](text);
  return 0;
}
