// Looks up names of collectives, types and algorithms. Does not depend on the commands.
#include "perf/cli/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/cli/spellings.h"
#include "topo/base/status.h"
#include "topo/base/text.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

constexpr Collective kAllCollectives[] = {Collective::kAllReduce,     Collective::kAllGather,
                                          Collective::kReduceScatter, Collective::kBroadcast,
                                          Collective::kReduce,        Collective::kGather,
                                          Collective::kScatter,       Collective::kAllToAll,
                                          Collective::kBarrier,       Collective::kSendRecv};

template <class Range>
std::string list(const Range& range) {
  std::string text;
  for (auto x : range) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(x));
  return text;
}

template <class Range>
std::vector<std::string> words(const Range& range) {
  std::vector<std::string> all;
  for (auto x : range) all.emplace_back(name(x));
  return all;
}

}  // namespace

std::span<const Collective> all_collectives() { return kAllCollectives; }
std::string collective_names() { return list(kAllCollectives); }
std::string dtype_names() { return list(kAllDTypes); }
std::string redop_names() { return list(kAllRedOps); }

Collective collective_named(std::string_view text) {
  if (const auto found = collective_from(text)) return *found;
  if (const std::string here = command_for(std::string(text)); !here.empty())
    throw Error(fmt::format("{}: it is `{}` here", text, here));
  const std::vector<std::string> names = words(kAllCollectives);
  throw Error(fmt::format("{}: there is no such collective{}; there are {}", text,
                          did_you_mean(text, names), collective_names()));
}

std::vector<DType> dtypes_named(std::string_view flag, std::string_view text) {
  if (text == "all") return {std::begin(kAllDTypes), std::end(kAllDTypes)};
  if (const auto found = dtype_from(text)) return {*found};
  throw Error(fmt::format("{} {}: there is no such type{}; there are {}, all", flag, text,
                          did_you_mean(text, words(kAllDTypes)), dtype_names()));
}

std::vector<RedOp> redops_named(std::string_view flag, std::string_view text) {
  if (text == "all") return {std::begin(kAllRedOps), std::end(kAllRedOps)};
  if (text == "mulsum") return {RedOp::kPreMulSum};  // nccl-tests' name
  if (const auto found = redop_from(text)) return {*found};
  throw Error(fmt::format("{} {}: there is no such operator{}; there are {}, all", flag, text,
                          did_you_mean(text, words(kAllRedOps)), redop_names()));
}

void check_algorithm(Collective collective, std::string_view algorithm) {
  if (algorithm == "auto" || find_algorithm(collective, algorithm) != nullptr) return;
  const std::string names = algorithm_names(collective);
  if (names.empty())
    throw Error(fmt::format("--algo {}: {} has no algorithms to choose from; leave it out",
                            algorithm, name(collective)));
  std::vector<std::string> known{"auto"};
  for (const Algorithm& a : algorithms())
    if (a.collective == collective) known.emplace_back(a.name);
  throw Error(fmt::format("--algo {}: {} has no such algorithm{}; it has auto, {}", algorithm,
                          name(collective), did_you_mean(algorithm, known), names));
}

void check_applies(Collective collective, std::string_view algorithm, const Shape& shape) {
  const Algorithm* found = find_algorithm(collective, algorithm);
  if (found == nullptr || found->applies(shape)) return;
  std::string others = "auto";
  for (const Algorithm& a : algorithms())
    if (a.collective == collective && a.applies(shape)) others += fmt::format(", {}", a.name);
  throw UsageError(fmt::format("--algo {}: does not work for {} ranks on {} hosts; these do: {}",
                               algorithm, shape.nranks, shape.hosts.size(), others));
}

Shape shape_of(const Topology& topology, Rank rank, Rank root) {
  Shape shape;
  shape.rank = rank;
  shape.nranks = topology.nranks();
  shape.root = root;
  for (int h = 0; h < topology.nhosts(); ++h) shape.hosts.push_back(topology.ranks_of(h));
  return shape;
}

Shape shape_of(int ranks, int hosts, Rank rank, Rank root) {
  Shape shape;
  shape.rank = rank;
  shape.nranks = ranks;
  shape.root = root;
  Rank next = 0;
  for (int h = 0; h < hosts; ++h) {
    auto& here = shape.hosts.emplace_back();
    for (int i = ranks / hosts + (h < ranks % hosts); i > 0; --i) here.push_back(next++);
  }
  return shape;
}

}  // namespace weft
