// What other ranks say of their hosts: the decoder refuses it with Error, or it survives encoding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/validate/facts/facts.h"
#include "topo/base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::fabric;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) return 0;
  try {
    const auto once = to_json(host_facts_from_json(json));
    if (to_json(host_facts_from_json(once)) != once) std::abort();
  } catch (const weft::Error&) {
  }
  return 0;
}
