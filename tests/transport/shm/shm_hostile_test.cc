// A hostile rank of the machine writes to shared memory: invalid offsets and lengths, unlimited
// messages, truncated files. It is named, no other memory is touched, and the other ranks continue.
// ctest: alone
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <string>

#include "transport/memory/memory.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/offers.h"
#include "transport/shm_raw.h"

namespace {

// This process's requests to Yama (prctl), the last being in force. The kernel cannot be queried.
std::vector<unsigned long> ptracers;

}  // namespace

extern "C" int prctl(int option, ...) {
  va_list all;
  va_start(all, option);
  unsigned long a[4];
  for (unsigned long& one : a) one = va_arg(all, unsigned long);
  va_end(all);
  if (option == PR_SET_PTRACER) {
    ptracers.push_back(a[0]);
    return 0;
  }
  return static_cast<int>(syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]));
}

namespace weft::testing {
namespace {

using shm::Kind;

class ShmHostile : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("WEFT_UNEXPECTED_BYTES", "65536", 1);
    raw_ = std::make_unique<RawShm>(3);
    unsetenv("WEFT_UNEXPECTED_BYTES");
  }
  // Rank 1's pending transfers fail and name it; rank 2 continues.
  void expect_end(std::string_view why) {
    const Status cause = raw_->transport->cause(1);
    EXPECT_EQ(cause.code(), Code::kTransport);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_EQ(cause.message().find("rank 1 (pid"), 0u) << cause.message();
    EXPECT_NE(cause.message().find(why), std::string::npos) << cause.message();
    raw_->completions.clear();
    std::array<char, 4> got{};
    raw_->post(Transfer::Kind::kRecv, 1, 90, got.data(), got.size(), 90);
    raw_->post(Transfer::Kind::kSend, 1, 91, got.data(), got.size(), 91);
    raw_->post(Transfer::Kind::kRecv, 2, 77, got.data(), got.size(), 77);
    raw_->say(1, 90, "late");
    raw_->say(2, 77, "well");
    raw_->poll();
    ASSERT_EQ(raw_->completions.size(), 3u);
    for (const Completion& c : raw_->completions)
      EXPECT_EQ(c.code, c.id == 77 ? Code::kOk : Code::kTransport) << c.id;
    EXPECT_EQ(std::string_view(got.data(), got.size()), "well");
    EXPECT_TRUE(raw_->transport->cause(2).ok());
  }

  std::unique_ptr<RawShm> raw_;
};

// Three cases: with a posted receive, with a view, and with neither.
TEST_F(ShmHostile, ACellThatPointsNowhereEndsItsSender) {
  const std::size_t slots = raw_->layout().slots, end = raw_->layout().bytes;
  const struct {
    Kind kind;
    std::uint64_t bytes, address, serial;
  } cells[] = {
      {Kind::kInline, shm::kInline + 1, 0, 0},
      {Kind::kInline, 255, 0, 0},
      {Kind::kSlot, 64, end - 63, 0},
      {Kind::kSlot, 64, ~std::uint64_t{0} - 10, 0},
      {Kind::kSlot, 64, 0, 0},
      {Kind::kSlot, 64, slots - 1, 0},
      {Kind::kSlot, shm::kMaxSlot + 1, slots, 0},
      {Kind::kSlot, ~std::uint64_t{0}, slots, 0},
      {Kind::kFragment, 64, end, 64},
      {Kind::kFragment, 64, slots, 63},
      {Kind::kFragment, 0, slots, 64},
      {Kind{5}, 64, slots, 0},
      {Kind{255}, 64, slots, 0},
  };
  for (const auto& c : cells)
    for (const int how : {0, 1, 2}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(c.kind) << " " << c.bytes << " "
                                        << c.address << " receive " << how);
      SetUp();
      std::array<char, 64> got;
      got.fill('x');
      if (how == 1) raw_->post(Transfer::Kind::kRecv, 1, 5, got.data(), got.size(), 1);
      if (how == 2) raw_->post(Transfer::Kind::kView, 1, 5, nullptr, 64, 1);
      raw_->write(1, c.kind, 5, c.bytes, c.address, c.serial);
      raw_->poll();
      ASSERT_EQ(raw_->completions.size(), how ? 1u : 0u);
      if (how) EXPECT_EQ(raw_->completions[0].code, Code::kTransport);
      EXPECT_TRUE(std::ranges::all_of(got, [](char b) { return b == 'x'; }));
      expect_end("it wrote a cell of");
    }
}

// Fragments longer than the message in total, and a whole message after a fragment.
TEST_F(ShmHostile, AMessageDoesNotGoOnPastItsEnd) {
  for (const Kind second : {Kind::kFragment, Kind::kSlot}) {
    SetUp();
    std::vector<char> got(200, 'x');
    raw_->post(Transfer::Kind::kRecv, 1, 5, got.data(), 100, 1);
    raw_->write(1, Kind::kFragment, 5, 60, raw_->layout().slots, 100);
    raw_->write(1, second, 5, second == Kind::kSlot ? 100 : 60, raw_->layout().slots, 100);
    raw_->poll();
    ASSERT_EQ(raw_->completions.size(), 1u);
    EXPECT_EQ(raw_->completions[0].code, Code::kTransport);
    EXPECT_TRUE(std::all_of(got.begin() + 100, got.end(), [](char b) { return b == 'x'; }));
    expect_end("more bytes than the message has");
  }
}

// As above, but the fragments arrive before their receive.
TEST_F(ShmHostile, NorDoesOneThatNobodyHadAskedFor) {
  std::vector<char> got(200, 'x');
  raw_->write(1, Kind::kFragment, 5, 60, raw_->layout().slots, 100);
  raw_->write(1, Kind::kFragment, 5, 60, raw_->layout().slots, 100);
  raw_->poll();
  raw_->post(Transfer::Kind::kRecv, 1, 5, got.data(), 100, 1);
  raw_->poll();
  ASSERT_EQ(raw_->completions.size(), 1u);
  EXPECT_EQ(raw_->completions[0].code, Code::kTransport);
  EXPECT_TRUE(std::all_of(got.begin() + 100, got.end(), [](char b) { return b == 'x'; }));
  expect_end("more bytes than the message has");
}

// The peer is slowed: its messages stay in its cells.
TEST_F(ShmHostile, MessagesThatNobodyAsksForHaveALimit) {
  const std::size_t before = UnexpectedMemory::of_process();
  std::size_t most = 0;
  for (std::uint64_t tag = 100; tag < 200; ++tag) {
    raw_->write(1, Kind::kFragment, tag, 1000, raw_->layout().slots, 5000);
    raw_->poll(1);
    most = std::max(most, UnexpectedMemory::of_process() - before);
  }
  EXPECT_TRUE(raw_->transport->cause(1).ok());
  EXPECT_LE(most, 65'536u);
  EXPECT_GE(most, 32'768u) << "nothing is tested";
}

TEST_F(ShmHostile, NorIsMemoryTakenForOneThatIsEndless) {
  for (int i = 0; i < 8; ++i) raw_->say(1, 100, "fill");
  raw_->write(1, Kind::kCma, 101, std::uint64_t{1} << 60, 4096);
  raw_->poll();
  expect_end("WEFT_UNEXPECTED_BYTES");
}

// Region, serial and offset also come from the peer. (Here the directory is this process's own.)
TEST_F(ShmHostile, MemoryOfTheAllocatorThatIsNotThere) {
  void* const memory = alloc(8192);
  const RegionRef ref = find_region(memory, 1);
  const std::size_t size = region_bytes(ref);
  std::array<char, 64> got;
  const auto try_one = [&](std::uint64_t serial, std::uint32_t index, std::uint64_t offset) {
    raw_->completions.clear();
    got.fill('x');
    raw_->post(Transfer::Kind::kRecv, 1, 5, got.data(), got.size(), 1);
    raw_->write(1, Kind::kMapped, 5, 64, offset, serial, index);
    raw_->poll();
    return raw_->completions.size() == 1 ? raw_->completions[0].code : Code::kInternal;
  };
  std::memset(memory, 'm', 8192);
  EXPECT_EQ(try_one(ref.serial, ref.index, 0), Code::kOk);
  EXPECT_EQ(got[63], 'm');
  EXPECT_EQ(try_one(ref.serial, ref.index, size - 64), Code::kOk);
  for (const std::uint64_t offset : {size - 63, size, size + 1, ~std::uint64_t{0} - 8}) {
    EXPECT_EQ(try_one(ref.serial, ref.index, offset), Code::kPeerFailed) << offset;
    EXPECT_EQ(got[0], 'x');
  }
  EXPECT_EQ(try_one(ref.serial + 1000, ref.index, 0), Code::kPeerFailed);
  EXPECT_EQ(try_one(ref.serial + 1000, ~0u, 0), Code::kPeerFailed);
  free(memory);
}

// Reading memory that a peer has truncated would raise SIGBUS.
TEST_F(ShmHostile, NobodyCutsMemoryShort) {
  const std::string path = "/proc/self/fd/" + std::to_string(raw_->hello.arena_fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(errno, EPERM);
  ::close(fd);
}

// Files that can be truncated, that are too short, or that are not shared memory are refused.
TEST(ShmSetUp, MemoryThatMayGoAwayIsRefusedByName) {
  const auto refused = [](int fd) -> std::string {
    try {
      const RawShm raw(2, [fd](Rank, shm::Hello& hello) { hello.arena_fd = fd; });
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  const std::size_t bytes = shm::Layout(2).bytes;
  const int open_end = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(open_end, static_cast<off_t>(2 * bytes)), 0);
  EXPECT_NE(refused(open_end).find("rank 1: cannot use the shared memory"), std::string::npos);
  EXPECT_NE(refused(open_end).find("its length is not sealed"), std::string::npos);
  const SharedRegion shorter = SharedRegion::create(4096, "hostile", SharedRegion::Others::kWrite);
  EXPECT_NE(refused(shorter.fd()).find("it is shorter than announced"), std::string::npos);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_NE(refused(ends[0]).find("rank 1: cannot use the shared memory"), std::string::npos);
  for (const int fd : {open_end, ends[0], ends[1]}) ::close(fd);
}

// The number of peers' arenas that rank 0 has mapped, each partly read-only.
int mapped_arenas() {
  std::ifstream maps("/proc/self/maps");
  int all = 0;
  for (std::string line; std::getline(maps, line);)
    all += line.find(" r--s ") != std::string::npos && line.find("raw-arena") != std::string::npos;
  return all;
}

// On a large machine set-up maps nothing; the first message from or to a peer maps it.
TEST(ShmSetUp, APeerIsMappedWhenItIsNeeded) {
  constexpr int kRanks = static_cast<int>(shm::kMappedAtOnce) + 8;
  RawShm raw(kRanks);
  EXPECT_EQ(mapped_arenas(), 0);
  std::array<char, 4> got{};
  raw.post(Transfer::Kind::kRecv, 70, 5, got.data(), got.size(), 1);
  raw.poll();
  EXPECT_EQ(mapped_arenas(), 0) << "a receive waits in this rank's own memory";
  raw.say(70, 5, "well");
  raw.poll();
  ASSERT_EQ(raw.completions.size(), 1u);
  EXPECT_EQ(raw.completions[0].code, Code::kOk);
  EXPECT_EQ(std::string_view(got.data(), got.size()), "well");
  EXPECT_EQ(mapped_arenas(), 1);
  raw.post(Transfer::Kind::kSend, 70, 6, got.data(), got.size(), 2);
  EXPECT_EQ(mapped_arenas(), 1);
  raw.post(Transfer::Kind::kSend, 3, 6, got.data(), got.size(), 3);
  EXPECT_EQ(mapped_arenas(), 2);
  auto* const callers =
      reinterpret_cast<shm::Callers*>(raw.arenas[3].data() + raw.layout().callers);
  EXPECT_EQ(callers->count, 1u) << "rank 3 hears that rank 0 may send";
  EXPECT_EQ(callers->called(0), 1u);
  EXPECT_EQ(callers->called(1), 0u);
  // Marks of idle ranks, and a meaningless count, have no effect.
  for (Rank r = 1; r < 10; ++r) raw.call(r);
  for (int i = 0; i < 100; ++i) ++raw.callers().count;
  raw.callers().called(kRanks).store(1);
  raw.completions.clear();
  raw.poll();
  EXPECT_TRUE(raw.transport->cause(9).ok());
}

// In this case it is not detected at the start.
TEST(ShmSetUp, MemoryThatMayGoAwayIsRefusedWhenItIsNeeded) {
  for (const bool to_it : {true, false}) {
    const int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const std::size_t bytes = shm::Layout(3).bytes;
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(2 * bytes)), 0);
    RawShm raw(
        3, [fd](Rank r, shm::Hello& hello) { hello.arena_fd = r == 1 ? fd : hello.arena_fd; }, 0);
    std::array<char, 4> got{};
    raw.post(Transfer::Kind::kRecv, 1, 5, got.data(), got.size(), 1);
    if (to_it)
      raw.post(Transfer::Kind::kSend, 1, 6, got.data(), got.size(), 2);
    else
      raw.say(1, 5, "evil");
    raw.poll();
    raw.post(Transfer::Kind::kRecv, 1, 7, got.data(), got.size(), 3);
    raw.post(Transfer::Kind::kRecv, 2, 8, got.data(), got.size(), 4);
    raw.say(2, 8, "well");
    raw.poll();
    ASSERT_EQ(raw.completions.size(), to_it ? 4u : 3u);
    for (const Completion& c : raw.completions)
      EXPECT_EQ(c.code, c.id == 4 ? Code::kOk : Code::kTransport) << c.id;
    EXPECT_EQ(std::string_view(got.data(), got.size()), "well");
    const Status cause = raw.transport->cause(1);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_NE(cause.message().find("its length is not sealed"), std::string::npos)
        << cause.message();
    EXPECT_TRUE(raw.transport->cause(2).ok());
    const std::vector<std::uint64_t> parts{raw.transport->boards()->offer(),
                                           std::uint64_t{2} << 32 | 3, std::uint64_t{2} << 32 | 3};
    EXPECT_THROW((void)raw.transport->boards()->make(std::vector<Rank>{0, 1, 2}, parts), Error);
    ::close(fd);
  }
}

TEST_F(ShmHostile, APartOfABoardThatDoesNotExistIsRefusedByName) {
  const std::vector<Rank> members{0, 1, 2};
  const std::vector<std::uint64_t> parts{raw_->transport->boards()->offer(),
                                         std::uint64_t{2} << 32 | 5000, std::uint64_t{2} << 32 | 3};
  try {
    (void)raw_->transport->boards()->make(members, parts);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 offers"), std::string::npos);
  }
}

TEST_F(ShmHostile, APostToARankElsewhereGetsACode) {
  char byte = 0;
  for (const Rank nobody : {-1, 3, 1000}) {
    raw_->completions.clear();
    raw_->post(Transfer::Kind::kSend, nobody, 1, &byte, 1, 1);
    raw_->post(Transfer::Kind::kRecv, nobody, 1, &byte, 1, 2);
    raw_->poll();
    ASSERT_EQ(raw_->completions.size(), 2u);
    for (const Completion& c : raw_->completions) EXPECT_EQ(c.code, Code::kInvalidArgument);
    EXPECT_FALSE(raw_->transport->cause(nobody).ok());
  }
}

// Other processes may read this process's memory only while a transport needs that; slots do not.
TEST(ShmPtrace, IsForTheLifeOfATransportThatNeedsIt) {
  setenv("WEFT_SHM_COPY", "slots", 1);
  ptracers.clear();
  { const RawShm raw(2); }
  EXPECT_TRUE(ptracers.empty());
  unsetenv("WEFT_SHM_COPY");
  {
    const RawShm raw(2);  // all of its ranks have this process's parent
    ASSERT_GE(ptracers.size(), 1u);
    EXPECT_EQ(ptracers[0], PR_SET_PTRACER_ANY);
    if (getppid() > 1) EXPECT_EQ(ptracers.back(), static_cast<unsigned long>(getppid()));
    const auto before = ptracers.size();
    { const RawShm second(2); }
    EXPECT_NE(ptracers.back(), 0u) << "the first one still needs it";
    EXPECT_GT(ptracers.size(), before);
  }
  EXPECT_EQ(ptracers.back(), 0u);
}

// A rank with another parent needs a wider permission.
TEST(ShmPtrace, IsForOneFamilyWhereThatIsEnough) {
  ptracers.clear();
  const RawShm raw(2, [](Rank, shm::Hello& hello) { hello.parent = 1 << 30; });
  EXPECT_EQ(ptracers, std::vector<unsigned long>{PR_SET_PTRACER_ANY});
}

}  // namespace
}  // namespace weft::testing
