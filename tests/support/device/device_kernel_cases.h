// Cases for a device's reduction kernel: bit-identical to the host's kernels.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "coll/engine/kernels.h"
#include "coll/gpu/kernels.h"
#include "support/device/device_memory.h"

namespace weft::testing {

struct KernelCase {
  DType type;
  RedOp op;
  int nsrcs, ndsts;
  std::size_t count;
  std::size_t shift = 0;      // bytes by which every operand is misaligned
  std::size_t odd_shift = 0;  // additional misalignment of the last source
  bool in_place = false;      // the first destination is the last source
};

// Random elements without NaNs, whose payload may differ between devices.
inline std::vector<std::byte> random_elements(DType type, std::size_t count, std::mt19937& dice) {
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + i * size_of(type);
    const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
    switch (type) {
      case DType::kFloat32:
        put(std::ldexp(static_cast<float>(dice()) - 2e9f, static_cast<int>(dice() % 60) - 60));
        break;
      case DType::kFloat64:
        put(std::ldexp(static_cast<double>(dice()) - 2e9, static_cast<int>(dice() % 60) - 60));
        break;
      case DType::kFloat16:  // no infinities: their sums may be NaN
        put(static_cast<std::uint16_t>((dice() & 0x83ff) | (dice() % 27) << 10));
        break;
      case DType::kBFloat16:
        put(static_cast<std::uint16_t>((dice() & 0x807f) | (dice() % 200) << 7));
        break;
      case DType::kBool:
        put(static_cast<std::uint8_t>(dice() & 1));
        break;
      default:
        for (std::size_t b = 0; b < size_of(type); ++b) at[b] = static_cast<std::byte>(dice());
    }
  }
  return bytes;
}

inline void run_kernel_case(TestStream& stream, const KernelCase& c) {
  SCOPED_TRACE(::testing::Message()
               << name(c.type) << ' ' << name(c.op) << ", " << c.nsrcs << " sources, " << c.ndsts
               << " results of " << c.count << ", shift " << c.shift << '+' << c.odd_shift
               << (c.in_place ? ", in place" : ""));
  std::mt19937 dice(static_cast<unsigned>(c.count * 131 + static_cast<std::size_t>(c.nsrcs)));
  const std::size_t bytes = c.count * size_of(c.type);
  DeviceReduce r;
  r.type = c.type;
  r.op = c.op;
  r.divisor = c.op == RedOp::kAvg ? c.nsrcs : 1;
  r.nsrcs = c.nsrcs;
  r.ndsts = c.ndsts;
  r.count = c.count;
  std::deque<DeviceBuffer> buffers;
  std::vector<std::vector<std::byte>> values;
  std::vector<const void*> host;
  for (int k = 0; k < c.nsrcs; ++k) {
    values.push_back(random_elements(c.type, c.count, dice));
    auto& b = buffers.emplace_back(stream, bytes, c.shift + (k + 1 == c.nsrcs ? c.odd_shift : 0));
    b.put(values.back());
    r.srcs[k] = b.data();
  }
  for (const auto& v : values) host.push_back(v.data());
  for (int d = 0; d < c.ndsts; ++d) {
    if (d == 0 && c.in_place) {
      r.dsts[0] = buffers.back().data();
      continue;
    }
    r.dsts[d] = buffers.emplace_back(stream, bytes, c.shift).data();
  }
  if (c.op == RedOp::kPreMulSum)  // the host multiplies before it adds
    for (int k = 0; k < c.nsrcs; ++k) {
      r.factors[k] = k % 2 ? -3 : 2;
      auto& v = values[static_cast<std::size_t>(k)];
      multiply(v.data(), v.data(), c.type, r.factors[k], c.count);
    }
  std::vector<std::byte> want(bytes);
  reduce_kernel(c.type, c.op)(want.data(), host.data(), c.nsrcs, c.count);
  if (c.op == RedOp::kAvg) scale(want.data(), want.data(), c.type, c.nsrcs, c.count);

  stream.device().launch(device_work(r), stream.gpu(), stream.get());
  stream.wait();
  for (auto& b : buffers) {
    ASSERT_TRUE(b.intact_around());
    for (int d = 0; d < c.ndsts; ++d)
      if (b.data() == r.dsts[d]) {
        const auto got = b.get();
        for (std::size_t i = 0; i < bytes; ++i)
          ASSERT_EQ(got[i], want[i]) << "element " << i / size_of(c.type) << ", result " << d;
      }
  }
}

// Every type and operator, with vector bodies, heads, tails, and operands misaligned by an element
// or by a byte.
inline void run_kernel_cases(TestStream& stream) {
  for (const DType type : kAllDTypes)
    for (int o = 0; o < kRedOps; ++o) {
      const auto op = static_cast<RedOp>(o);
      if (!defined(op, type)) continue;
      const std::size_t e = size_of(type);
      const KernelCase cases[] = {
          {type, op, 1, 1, 1000},          {type, op, 2, 1, 1},
          {type, op, 2, 2, 4099},          {type, op, 3, 1, 1027, e},
          {type, op, 8, 8, 777},           {type, op, 3, 2, 500, 0, e},
          {type, op, 3, 1, 131, 1},        {type, op, 2, 1, 129, 0, 1},
          {type, op, 33, 3, 350, 2 * e},   {type, op, 4, 3, 2050, 0, 0, true},
          {type, op, 2, 1, 70, 3, 0, true}};
      for (const KernelCase& c : cases) {
        run_kernel_case(stream, c);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

}  // namespace weft::testing
