// The checksum against its bitwise definition and against known values.
#include "transport/memory/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace weft {
namespace {

std::uint32_t by_definition(const unsigned char* p, std::size_t n) {
  std::uint32_t crc = ~0u;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= p[i];
    for (int b = 0; b < 8; ++b) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

std::vector<unsigned char> noise(std::size_t n) {
  std::mt19937 random(42);
  std::vector<unsigned char> bytes(n);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  return bytes;
}

// RFC 3720, B.4.
TEST(Crc32c, KnownValues) {
  const std::vector<unsigned char> zeros(32, 0), ones(32, 0xff);
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(nullptr, 0), 0u);
}

TEST(Crc32c, OfPiecesIsThatOfTheWhole) {
  const auto bytes = noise(5000);
  for (const std::size_t cut : {0ul, 1ul, 63ul, 1024ul, 4999ul, 5000ul})
    EXPECT_EQ(crc32c(bytes.data() + cut, 5000 - cut, crc32c(bytes.data(), cut)),
              crc32c(bytes.data(), 5000));
}

TEST(Crc32c, CopyingGivesTheSameSumAndTheSameBytes) {
  const auto bytes = noise(20000);
  for (const std::size_t n : {0ul, 1ul, 40ul, 255ul, 1023ul, 1024ul, 1025ul, 1087ul, 1088ul, 1343ul,
                              4096ul, 4097ul, 8191ul, 16384ul, 19000ul})
    for (const std::size_t from : {0ul, 1ul, 17ul, 64ul})
      for (const std::size_t to : {0ul, 3ul, 32ul, 63ul})
        for (const bool streaming : {false, true}) {
          std::vector<unsigned char> out(20200, 0xa5);
          const std::uint32_t sum =
              copy_crc32c(out.data() + 100 + to, bytes.data() + from, n, streaming);
          ASSERT_EQ(sum, by_definition(bytes.data() + from, n))
              << n << " from " << from << " to " << to << (streaming ? " streaming" : "");
          ASSERT_EQ(std::memcmp(out.data() + 100 + to, bytes.data() + from, n), 0);
          ASSERT_EQ(out[99 + to], 0xa5) << "before";
          ASSERT_EQ(out[100 + to + n], 0xa5) << "behind";
        }
}

TEST(Crc32c, EveryFlippedBitChangesIt) {
  auto bytes = noise(3000);
  const std::uint32_t sum = crc32c(bytes.data(), bytes.size());
  std::vector<unsigned char> out(bytes.size());
  for (std::size_t bit = 0; bit < bytes.size() * 8; bit += 7) {
    const auto mask = static_cast<unsigned char>(1u << bit % 8);
    bytes[bit / 8] ^= mask;
    ASSERT_NE(copy_crc32c(out.data(), bytes.data(), bytes.size(), false), sum) << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace weft
