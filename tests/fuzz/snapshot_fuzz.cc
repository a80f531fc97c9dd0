// What ranks tell of each other (coll/observe/rank_snapshot.h): any text is refused, or understood;
// what is understood can be told on, and judged (coll/observe/diagnosis.h).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "coll/observe/diagnosis.h"
#include "coll/observe/rank_snapshot.h"
#include "topo/base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string told = weft::encode(weft::decode_snapshot(text));
    if (weft::encode(weft::decode_snapshot(told)) != told) std::abort();
  } catch (const weft::Error&) {
  }
  const auto all = weft::collect({text, "[" + text + "]"});
  if (weft::encode(weft::collect({weft::encode(all)})) != weft::encode(all)) std::abort();
  const weft::Evidence evidence{4, all, {}};
  const weft::Diagnosis d = weft::diagnose(evidence);
  if (d.text.empty() || weft::to_json(d, evidence).empty()) std::abort();
  return 0;
}
