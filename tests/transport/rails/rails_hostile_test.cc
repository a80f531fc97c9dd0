// A hostile rank sends Rails unlimited notes. It is named and then ignored; this rank's memory does
// not grow, and other peers continue. Also the limit of this rank's own messages.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "transport/offers.h"
#include "transport/rails/rails.h"

namespace weft::testing {
namespace {

// A rail that keeps what is posted.
class Silent final : public Transport, private Recovery {
 public:
  void post(std::span<const Transfer> transfers) noexcept override { posted += transfers.size(); }
  std::size_t poll(std::span<Completion>) noexcept override { return 0; }
  void cancel(std::uint32_t) noexcept override {}
  Caps caps() const override { return {.name = "silent"}; }
  Status cause(Rank) const override { return {}; }
  Recovery* recovery() noexcept override { return this; }
  std::size_t posted = 0;

 private:
  void disconnect(Rank) noexcept override {}
  std::string reopen(Rank) noexcept override { return "here"; }
  bool connect(Rank, std::string_view) noexcept override { return true; }
};

class Air final : public DatagramChannel {
 public:
  std::int64_t now_us() noexcept override { return now; }
  void send(Rank to, int, std::string_view bytes) noexcept override {
    if (bytes[0] == 'o') ++pongs[to];
  }
  bool receive(Datagram& datagram) noexcept override {
    if (in.empty()) return false;
    datagram = std::move(in.front());
    in.pop_front();
    return true;
  }
  bool link_up(int) noexcept override { return true; }
  std::int64_t now = 1;
  std::deque<Datagram> in;
  int pongs[3] = {};
};

struct Setting {
  explicit Setting(const RailsOptions& options = {}) {
    std::vector<std::unique_ptr<Transport>> inner;
    for (int r = 0; r < 2; ++r) {
      auto rail = std::make_unique<Silent>();
      lower.push_back(rail.get());
      inner.push_back(std::move(rail));
    }
    auto paths = std::make_unique<Air>();
    air = paths.get();
    rails = std::make_unique<Rails>(std::move(inner), std::move(paths), 0, 3, options);
    face = rails->face(0);
  }
  void poll(int times) {
    Completion out[16];
    for (int i = 0; i < times; ++i) {
      air->now += 1000;
      const std::size_t n = face->poll(out);
      ended.insert(ended.end(), out, out + n);
    }
  }
  void note(std::string_view body) {
    std::string text(1, 'n');
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
    ++number;
    air->in.push_back({1, 0, text + std::string(body)});
  }
  // Rails answers no more inquiries of rank 1, but those of another peer.
  void expect_unheard() {
    poll(200);
    air->pongs[1] = 0;
    air->in.push_back({1, 0, "i"});
    air->in.push_back({2, 0, "i"});
    poll(50);
    EXPECT_EQ(air->pongs[1], 0);
    EXPECT_EQ(air->pongs[2], 1);
  }

  std::vector<Silent*> lower;
  Air* air = nullptr;
  std::unique_ptr<Rails> rails;
  std::unique_ptr<Transport> face;
  std::vector<Completion> ended;
  std::uint32_t number = 0;
};

std::string lane_note(char kind, std::string_view rest) {
  std::string body(1, kind);
  body += '\0';                              // the rail
  body.append(sizeof(std::uint32_t), '\0');  // the generation
  return body + std::string(rest);
}

TEST(RailsHostile, NotesThatWantAnAnswerHaveALimit) {
  Setting s;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 6000; ++i) s.note(lane_note('O', "here"));
  s.poll(200);
  const std::string text = s.rails->describe(1);
  const auto at = text.rfind(", ");
  ASSERT_NE(at, std::string::npos) << text;
  const int owed = std::atoi(text.c_str() + at + 2);
  EXPECT_GT(owed, 1000);
  EXPECT_LT(owed, 4100) << text;
  s.expect_unheard();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 1 sent more"), std::string::npos);
}

TEST(RailsHostile, TagsOfMessagesHaveALimit) {
  for (const bool moves : {false, true}) {
    Setting s;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 250; ++i) {
      if (moves) {
        std::string body(1, 'E');
        for (std::uint64_t j = 0; j < 5000; ++j) {
          const std::uint64_t tag = static_cast<std::uint64_t>(i) * 5000 + j;
          body.append(reinterpret_cast<const char*>(&tag), sizeof tag);
          body += '\0';
        }
        s.note(body);
      } else {
        s.note(lane_note('d', std::string(40000, 't')));
      }
    }
    s.expect_unheard();
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 1 sent more tags"),
              std::string::npos);
  }
}

// The ids of inner transports limit the number of messages.
TEST(RailsHostile, MessagesOfThisRankHaveALimit) {
  Setting s({.most_messages = 100});
  char byte = 0;
  for (std::uint64_t i = 0; i < 150; ++i) {
    const Transfer t{.kind = Transfer::Kind::kRecv,
                     .peer = 1,
                     .tag = i,
                     .data = &byte,
                     .bytes = 1,
                     .id = (i + 1) << 32};
    s.face->post({&t, 1});
  }
  s.poll(10);
  ASSERT_GE(s.ended.size(), 50u);
  for (const Completion& c : s.ended) EXPECT_EQ(c.code, Code::kTransport);
  EXPECT_EQ(s.face->cause(1).code(), Code::kTransport);
  EXPECT_NE(s.face->cause(1).message().find("more than 100 messages"), std::string::npos);
}

}  // namespace
}  // namespace weft::testing
