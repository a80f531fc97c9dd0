// What people type: sizes, ladders of sizes, names and rates. Understood, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "coll/runtime/calibrate.h"
#include "coll/types.h"
#include "perf/cli/bytes.h"
#include "perf/cli/names.h"
#include "topo/base/status.h"
#include "transport/launch/failures.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

template <class F>
auto tried(F f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const weft::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto bytes = tried([&] { return parse_bytes("-b", text); });
  if (bytes) {
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
  return 0;
}
