// What a launcher says, in the environment of weft launch and torchrun: a job that can be, or an
// Error. An input is lines of a letter, which names the variable, and its value.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transport/job/bootstrap.h"

namespace {

constexpr std::array kVariables = {"WEFT_RANK",   "WEFT_SIZE",          "WEFT_ROOT",
                                   "WEFT_SECRET", "WEFT_ROOT_FD",       "WEFT_TIMEOUT_MS",
                                   "RANK",        "WORLD_SIZE",         "MASTER_ADDR",
                                   "MASTER_PORT", "TORCHELASTIC_RUN_ID"};

void require(bool truth) {
  if (!truth) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* variable : kVariables) unsetenv(variable);
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const auto which = static_cast<unsigned char>(line[0] - 'a') % kVariables.size();
    setenv(kVariables[which], std::string(line.substr(1)).c_str(), 1);
  }
  try {
    const weft::JobSpec spec = weft::job_from_environment();
    require(spec.size >= 1 && spec.rank >= 0 && spec.rank < spec.size);
    require(spec.timeout.count() > 0);
    if (spec.size > 1)
      require(!spec.address.empty() && !spec.ports.empty() && !spec.secret.empty());
    for (const std::uint16_t port : spec.ports) require(port != 0);
  } catch (const weft::Error&) {
  }
  return 0;
}
