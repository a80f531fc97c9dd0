// Block quantization: the error at every magnitude, and the handling of NaN.
#include "coll/engine/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "coll/api/communicator.h"

namespace weft {
namespace {

constexpr Codec kCodecs[] = {Codec::kInt8, Codec::kFp8};
constexpr float kMax = std::numeric_limits<float>::max();

std::vector<float> there_and_back(Codec codec, const std::vector<float>& x) {
  std::vector<std::byte> coded(coded_bytes(x.size()));
  std::vector<float> out(x.size());
  encode(codec, coded.data(), x.data(), nullptr, nullptr, x.size());
  decode(codec, out.data(), coded.data(), x.size());
  return out;
}

float largest(const std::vector<float>& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  return most;
}

TEST(Codec, ErrorIsBoundedAtEveryMagnitudeAndLength) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  for (const Codec codec : kCodecs)
    for (int exponent = -149; exponent <= 126; ++exponent)
      for (const std::size_t count : {1u, 2u, 31u, 255u, 256u}) {
        std::vector<float> x(count);
        for (float& v : x)
          v = std::ldexp(mantissa(random), exponent - static_cast<int>(random() % 24));
        const auto out = there_and_back(codec, x);
        const double bound = codec_error(codec) * std::max(largest(x), kCodecLeast);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_LE(std::abs(double{out[i]} - x[i]), bound) << name(codec) << " " << x[i];
      }
}

// Every representable value round-trips, and values between two round to the nearer one.
TEST(Codec, Fp8RoundsToNearest) {
  std::vector<double> values = {0};
  for (int e = -9; e <= 8; ++e)
    for (int m = 0; m < 8; ++m) {
      if (e < -6 && e != -9) continue;
      const double v = e == -9 ? std::ldexp(m, -9) : std::ldexp(1 + m / 8.0, e);
      if (v > 0 && v <= 448) values.push_back(v);
    }
  ASSERT_EQ(values.size(), 127u);
  // A block maximum that makes the scale 1 except for its rounding down.
  for (std::size_t k = 0; k + 1 < values.size(); ++k)
    for (const double share : {0.0, 0.3, 0.7}) {
      const double v = values[k] + share * (values[k + 1] - values[k]);
      const auto out =
          there_and_back(Codec::kFp8, {448, static_cast<float>(v), static_cast<float>(-v)});
      const double wanted = share < 0.5 ? values[k] : values[k + 1];
      EXPECT_NEAR(out[1], wanted, wanted * 1e-6) << v;
      EXPECT_EQ(out[2], -out[1]);
    }
}

TEST(Codec, Extremes) {
  for (const Codec codec : kCodecs) {
    EXPECT_EQ(there_and_back(codec, {0, -0.0F, 0}), (std::vector<float>{0, 0, 0}));
    for (const float v : there_and_back(codec, {kMax, -kMax})) EXPECT_TRUE(std::isfinite(v));
    // Below the smallest block maximum, the error is at most that of the smallest block.
    for (const float v : there_and_back(codec, {1e-45F, -1e-38F}))
      EXPECT_LE(std::abs(v), codec_error(codec) * kCodecLeast + 1e-38);
  }
}

TEST(Codec, NanAndInfinityMakeTheirBlockNan) {
  for (const Codec codec : kCodecs)
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(3 * kCodecBlock, 1), error(x.size(), 5);
      x[kCodecBlock + 17] = bad;
      std::vector<std::byte> coded(coded_bytes(x.size()));
      encode(codec, coded.data(), x.data(), nullptr, error.data(), x.size());
      std::vector<float> out(x.size());
      decode(codec, out.data(), coded.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(std::isnan(out[i]), i / kCodecBlock == 1) << i;
        EXPECT_LT(std::abs(error[i]), 0.1) << i;
      }
    }
}

TEST(Codec, ErrorIsWhatTheDecodedValueLacks) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Codec codec : kCodecs) {
    std::vector<float> x(1000), carry(x.size()), sum(x.size()), out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = normal(random);
      carry[i] = normal(random) / 100;
      sum[i] = x[i] + carry[i];
    }
    std::vector<std::byte> coded(coded_bytes(x.size()));
    encode(codec, coded.data(), x.data(), carry.data(), carry.data(), x.size());
    decode(codec, out.data(), coded.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(carry[i], sum[i] - out[i]);
  }
}

// All arithmetic of an all_reduce in a million random blocks of a few values: the stated bound
// holds for any number of ranks.
TEST(Codec, StatedBoundHoldsInAMillionCases) {
  std::mt19937 random(11);
  const auto uniform = [&] { return static_cast<float>(random()) * 0x1p-31F - 1; };
  for (int trial = 0; trial < 1000000; ++trial) {
    const Codec codec = kCodecs[trial % 2];
    const std::size_t n = 1 + random() % 8, count = 1 + random() % 4;
    float x[8][4], sum[4], out[4];
    std::byte coded[8][8];
    const std::byte* from[8];
    double exact[4] = {}, most = 0;
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        x[r][i] = std::ldexp(uniform(), -static_cast<int>(random() % 12));
        exact[i] += x[r][i];
        most = std::max(most, std::abs(double{x[r][i]}));
      }
      encode(codec, coded[r], x[r], nullptr, nullptr, count);
      from[r] = coded[r];
    }
    decode_sum(codec, sum, from, static_cast<int>(n), count);
    const auto bound = [&](Collective c) {
      return error_bound(codec, c, RedOp::kSum, static_cast<int>(n)) * most;
    };
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_LE(std::abs(sum[i] - exact[i]), bound(Collective::kReduceScatter)) << trial;
    encode(codec, coded[0], sum, nullptr, nullptr, count);
    decode(codec, out, coded[0], count);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_LE(std::abs(out[i] - exact[i]), bound(Collective::kAllReduce)) << trial;
  }
}

TEST(Codec, SumsInTheOrderOfTheSources) {
  std::vector<std::vector<std::byte>> coded;
  std::vector<const std::byte*> from;
  std::vector<float> wanted(300, 0), out(wanted.size());
  for (int k = 0; k < 5; ++k) {
    std::vector<float> x(wanted.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(i + 7 * k)) * 1e3F;
    coded.emplace_back(coded_bytes(x.size()));
    encode(Codec::kInt8, coded.back().data(), x.data(), nullptr, nullptr, x.size());
    std::vector<float> back(x.size());
    decode(Codec::kInt8, back.data(), coded.back().data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = k == 0 ? back[i] : wanted[i] + back[i];
  }
  for (const auto& c : coded) from.push_back(c.data());
  decode_sum(Codec::kInt8, out.data(), from.data(), 5, out.size());
  EXPECT_EQ(out, wanted);
}

TEST(Codec, PartsAreWholeBlocksOrLess) {
  for (const std::size_t n : {1u, 2u, 3u, 7u, 64u})
    for (const std::size_t count : {0u, 1u, 5u, 255u, 1021u, 4096u, 100003u}) {
      const std::size_t part = coded_part(count, n);
      EXPECT_GE(part * n, count);
      EXPECT_TRUE(part < kCodecBlock || part % kCodecBlock == 0);
    }
  EXPECT_EQ(coded_bytes(0), 0u);
  EXPECT_EQ(coded_bytes(257), 277u);
}

}  // namespace
}  // namespace weft
