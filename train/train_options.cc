// The text of options, and the check for contradictions between them.
#include "train/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "coll/runtime/internals.h"
#include "transport/launch/failures.h"

namespace weft::train {

std::string describe(const TrainOptions& options) {
  std::string text;
  for_each_option(options, [&](const char* name, const auto& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, value);
  });
  return text;
}

TrainOptions with_described(TrainOptions options, const std::string& text) {
  std::map<std::string, std::string> said;
  std::istringstream words(text);
  for (std::string name, value; words >> name >> value;) said[name] = value;
  for_each_option(options, [&](const char* name, auto& value) {
    if (const auto it = said.find(name); it != said.end())
      std::istringstream(it->second) >> std::boolalpha >> value;
  });
  return options;
}

// If sizes differed between ranks, ranks would wait for messages that are never sent. If the update
// differed, weights would diverge without an error.
void agree(World& world, const std::string& mine) {
  const auto all = job_of(world).all_gather(mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    std::istringstream a(all[0]), b(all[r]);
    std::string name, x, y;
    while (a >> name >> std::quoted(x) && b >> name >> std::quoted(y) && x == y) continue;
    throw UsageError(
        fmt::format("rank {} has {} {}, rank 0 has {}; give every rank the same "
                    "options and data",
                    r, name, y, x));
  }
}

GptParallel parallel_of(const TrainOptions& o) {
  const auto embed = std::find(kEmbeds.begin(), kEmbeds.end(), o.embed) - kEmbeds.begin();
  return {nullptr, o.sequence_parallel && o.mesh.tensor > 1, o.seed_style,
          static_cast<Embed>(embed)};
}

void check(const TrainOptions& o) {
  try {
    check_shape(o.model, o.mesh.tensor, o.mesh.pipeline * o.chunks, o.micro_batch, parallel_of(o));
    if (o.seed_style && o.sequence_parallel)
      throw Error("--tp-style seed with --sequence-parallel: not together; leave one out");
    if (o.compress != "none" && (o.zero > 0 || o.deterministic || o.parameter_server))
      throw Error(fmt::format(
          "--compress {} with {}: only an all-reduce of gradients is compressed; leave one out",
          o.compress,
          o.zero > 0        ? fmt::format("--zero {}", o.zero)
          : o.deterministic ? "--deterministic"
                            : "--sync ps"));
    if (o.parameter_server && o.zero > 0)
      throw Error(fmt::format(
          "--sync ps with --zero {}: the server has all of the optimizer's state; leave one out",
          o.zero));
    if (o.deterministic && o.zero >= 2) {
      if (o.mesh.shard != 0 && o.mesh.shard != o.mesh.data)
        throw Error(
            fmt::format("--deterministic with --zero {} and --shard-group {}: sums would "
                        "depend on the groups; leave one out",
                        o.zero, o.mesh.shard));
      // The tied embedding's gradient is sent once per step, for all micro-batches together.
      if (o.model.tied && o.mesh.pipeline * o.chunks > 1)
        throw Error(
            fmt::format("--deterministic with --zero {} and --pp {}: the tied head's sums "
                        "would depend on --dp; use --untied or --zero 1",
                        o.zero, o.mesh.pipeline));
    }
    // No axis would add the gradients of a tied embedding's two copies: see Mesh::ends.
    if (o.chunks > 1 && o.mesh.pipeline == 1)
      throw Error(fmt::format(
          "--chunks {} with --pp 1: there is no pipeline whose ranks could have several "
          "stages; leave it out, or say --pp 2 or more",
          o.chunks));
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace weft::train
