// weft::alloc: every function refuses impossible sizes, and other processes' access to shared
// memory is limited.
#include "transport/memory/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "topo/base/status.h"
#include "transport/memory/shared_region.h"

namespace weft {
namespace {

TEST(Memory, MoreThanThereIsIsRefused) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8})
    EXPECT_THROW(alloc(bytes), Error) << bytes;
  EXPECT_THROW(alloc_array<float>(SIZE_MAX), Error);
  // A count whose size in bytes is 4 modulo 2^64.
  EXPECT_THROW(alloc_array<float>(SIZE_MAX / 4 + 2), Error);
}

// Regression: the kernel killed the process, since shared memory is a file.
TEST(Memory, MoreThanAFileMayHaveIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  std::string said;
  try {
    alloc(4 << 20);
  } catch (const Error& e) {
    said = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(said.find("ulimit -f"), said.npos) << said;
}

// Its directory entry is reused, and a late peer must not take the new allocation for the old one.
TEST(Memory, WhatWasFreedIsNoRegion) {
  void* const memory = alloc(8192);
  const RegionRef ref = find_region(memory, 8192);
  ASSERT_NE(ref.serial, 0U);
  PeerRegions theirs(getpid(), region_directory_fd());
  weft::free(memory);
  EXPECT_EQ(find_region(memory, 1).serial, 0U);
  void* const other = alloc(8192);
  EXPECT_EQ(theirs.resolve(ref, 8192, false), nullptr);
  weft::free(other);
}

// A peer cannot write, whether it opens the memory like the library does or in another way.
TEST(Memory, OthersMayNotWrite) {
  const SharedRegion mine = SharedRegion::create(8192, "mine", SharedRegion::Others::kRead);
  std::memset(mine.data(), 'm', mine.size());
  const SharedRegion theirs =
      SharedRegion::open(getpid(), mine.fd(), 8192, SharedRegion::Others::kRead);
  EXPECT_EQ(static_cast<char>(theirs.data()[8191]), 'm');
  mine.data()[0] = std::byte{'n'};
  EXPECT_EQ(static_cast<char>(theirs.data()[0]), 'n');
  if (!(fcntl(mine.fd(), F_GET_SEALS) & 0x10))  // F_SEAL_FUTURE_WRITE
    GTEST_SKIP() << "missing capability: Linux 5.1";
  EXPECT_THROW(SharedRegion::open(getpid(), mine.fd(), 8192, SharedRegion::Others::kWrite), Error);
  const std::string path = "/proc/self/fd/" + std::to_string(mine.fd());
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  close(fd);
}

// A peer with write access cannot write everywhere.
TEST(Memory, APartIsReadOnly) {
  const SharedRegion mine = SharedRegion::create(4 * 4096, "mine", SharedRegion::Others::kWrite);
  SharedRegion theirs =
      SharedRegion::open(getpid(), mine.fd(), mine.size(), SharedRegion::Others::kWrite);
  theirs.read_only_from(4097);  // from the third page on
  theirs.data()[8191] = std::byte{'x'};
  EXPECT_EQ(static_cast<char>(mine.data()[8191]), 'x');
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(zeros, 0);
  EXPECT_EQ(read(zeros, theirs.data() + 8191, 1), 1);
  EXPECT_EQ(read(zeros, theirs.data() + 8192, 1), -1) << "the kernel says so without a signal";
  EXPECT_EQ(errno, EFAULT);
  close(zeros);
}

}  // namespace
}  // namespace weft
