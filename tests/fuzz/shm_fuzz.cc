// A rank of the machine writes cells with any content to another one's shared memory, between this
// rank's own posts, polls and cancels. No invalid reads or writes, and nothing completes twice.
//
// The input is a sequence of steps: a byte that selects the step, and the following bytes that it
// needs. A cell's numbers are mostly near valid ones.
// runs: 3000
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "transport/offers.h"
#include "transport/shm_raw.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using weft::Transfer;
  static const int limit = setenv("WEFT_UNEXPECTED_BYTES", "1000000", 1);
  require(limit == 0);
  weft::testing::RawShm raw(2);
  constexpr std::size_t kBytes = 1000, kGuard = 64;
  std::vector<char> memory(kBytes + kGuard, 0x5c);
  std::map<std::uint64_t, int> ended;
  std::set<std::uint64_t> given_up;
  std::uint64_t next = 0;
  const std::uint8_t* const end = data + size;
  const auto byte = [&]() -> std::uint8_t { return data < end ? *data++ : std::uint8_t{0}; };
  // 0, small, near the size of a slot or of the arena, or any number.
  const auto number = [&]() -> std::uint64_t {
    const std::uint8_t how = byte();
    const std::uint64_t near[] = {0,
                                  raw.layout().slots,
                                  raw.layout().bytes,
                                  weft::shm::kMaxSlot,
                                  std::uint64_t{1} << 63,
                                  kBytes,
                                  64,
                                  ~std::uint64_t{0}};
    return near[how >> 5] + (how & 31u) - (how & 16u ? 32u : 0u);
  };
  while (data < end) {
    const std::uint8_t what = byte();
    switch (what % 6) {
      case 0:
      case 1:
      case 2: {
        const auto kind = static_cast<weft::shm::Kind>(what >> 3 & 7);
        const std::uint64_t bytes = number(), address = number(), serial = number();
        raw.cell(1).revoked.store(what >> 7);
        raw.write(1, kind, byte() & 3u, bytes, address, serial, byte());
        break;
      }
      case 3: {
        Transfer t{.peer = 1, .tag = what >> 3 & 3u, .id = next};
        t.kind = what & 64 ? Transfer::Kind::kView : Transfer::Kind::kRecv;
        t.bytes = std::min<std::size_t>(number(), kBytes);
        if (t.kind == Transfer::Kind::kRecv) t.data = memory.data();
        raw.transport->post({&t, 1});
        ended[next] = 0;
        next += std::uint64_t{1} << 32;
        break;
      }
      case 4: {
        Transfer t{
            .peer = 1, .tag = what >> 3 & 3u, .data = memory.data(), .bytes = what, .id = next};
        raw.transport->post({&t, 1});
        ended[next] = 0;
        next += std::uint64_t{1} << 32;
        if (what & 64) {
          raw.transport->cancel(static_cast<std::uint32_t>(t.id >> 32));
          given_up.insert(t.id);
        }
        if (what & 32) raw.transport->forget(what & 3u, 3);
        break;
      }
      default:
        raw.poll(1);
    }
  }
  raw.poll(8);
  for (const weft::Completion& c : raw.completions) {
    require(ended.contains(c.id) && ++ended[c.id] == 1 && !given_up.contains(c.id));
    require(c.code == weft::Code::kOk || raw.transport->cause(1).rank() == 1);
    if (c.view) (void)raw.transport->views()->release(c.token);
  }
  for (std::size_t i = kBytes; i < memory.size(); ++i) require(memory[i] == 0x5c);
  return 0;
}
