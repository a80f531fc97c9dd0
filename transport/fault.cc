// Parses WEFT_FAULT and injects the fault between a transport and its user. This file does not
// depend on the purpose of transfers.
#include "transport/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topo/base/log.h"
#include "transport/decorator.h"

namespace weft {
namespace {

// Marks tokens of views into copies_.
constexpr std::uint64_t kCopyToken = std::uint64_t{1} << 62;

class Faulty final : public Decorator, private Views {
 public:
  Faulty(std::unique_ptr<Transport> inner, const Fault& fault, Rank me)
      : Decorator(std::move(inner)),
        fault_(fault),
        me_(me),
        random_(fault.seed + static_cast<std::uint64_t>(me)) {}

  void post(std::span<const Transfer> transfers) noexcept override {
    for (const Transfer& t : transfers) {
      const bool send = t.kind == Transfer::Kind::kSend;
      if (send && fault_.kind == Fault::Kind::kDrop && hit(t)) {
        log().warn("weft: fault: rank {} drops {} bytes to rank {}", me_, t.bytes, t.peer);
        done_.push_back({.id = t.id});
        continue;
      }
      if (!send && fault_.kind != Fault::Kind::kDrop) received_[t.id] = t;
      inner_->post({&t, 1});
    }
  }

  std::size_t poll(std::span<Completion> out) noexcept override {
    ++polls_;
    std::array<Completion, 32> batch;
    const std::size_t n = inner_->poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      Completion c = batch[i];
      const auto it = received_.find(c.id);
      if (it == received_.end()) {
        done_.push_back(c);
        continue;
      }
      const Transfer t = it->second;
      received_.erase(it);
      if (c.code == Code::kOk && hit(t)) {
        if (fault_.kind == Fault::Kind::kDelay) {
          late_.push_back({polls_ + fault_.polls, c});
          continue;
        }
        flip(t, c);
      }
      done_.push_back(c);
    }
    std::erase_if(late_, [this](const auto& l) {
      if (l.first <= polls_) done_.push_back(l.second);
      return l.first <= polls_;
    });
    const std::size_t given = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), given, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(given));
    return given;
  }

  void cancel(std::uint32_t id_high) noexcept override {
    const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
    inner_->cancel(id_high);
    std::erase_if(received_, [&](const auto& r) { return mine(r.first); });
    const auto drop = [&](const Completion& c) {
      if (!mine(c.id)) return false;
      if (c.token || c.view) release(c.token);
      return true;
    };
    std::erase_if(done_, drop);
    std::erase_if(late_, [&](const auto& l) { return drop(l.second); });
  }
  bool arm(std::vector<int>& fds) noexcept override {
    return done_.empty() && late_.empty() && inner_->arm(fds);
  }

  Views* views() noexcept override { return inner_->views() ? this : nullptr; }

 private:
  bool release(std::uint64_t token) noexcept override {
    if (!(token & kCopyToken)) return inner_->views()->release(token);
    copies_.erase(token);
    return true;
  }
  bool verify(std::uint64_t token, std::uint32_t crc) noexcept override {
    return inner_->views()->verify(token, crc);
  }
  bool hit(const Transfer& t) {
    if (t.repeat && !fault_.repeats) return false;
    if (t.bytes < fault_.min_bytes || t.bytes == 0 || ++seen_ < fault_.nth) return false;
    const std::uint64_t after = seen_ - fault_.nth;
    return (fault_.every ? after % fault_.every : after) < fault_.times;
  }

  void flip(const Transfer& t, Completion& c) {
    std::byte* at = static_cast<std::byte*>(t.data);
    if (t.kind == Transfer::Kind::kView) {
      if (!c.view) return;  // a phantom transport
      const std::uint64_t token = kCopyToken | ++next_copy_;
      std::vector<std::byte>& copy = copies_[token];
      const auto* from = static_cast<const std::byte*>(c.view);
      copy.assign(from, from + t.bytes);
      inner_->views()->release(c.token);
      at = copy.data();
      c.view = at;
      c.token = token;
    }
    if (!at) return;
    const std::uint64_t bit = random_() % (t.bytes * 8);
    at[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    log().warn("weft: fault: rank {} flips bit {} of {} bytes from rank {}", me_, bit, t.bytes,
               t.peer);
  }

  const Fault fault_;
  const Rank me_;
  std::mt19937_64 random_;
  std::uint64_t seen_ = 0, polls_ = 0, next_copy_ = 0;
  std::unordered_map<std::uint64_t, Transfer> received_;  // posted receives, by id
  std::unordered_map<std::uint64_t, std::vector<std::byte>> copies_;
  std::vector<Completion> done_;
  std::vector<std::pair<std::uint64_t, Completion>> late_;
};

std::uint64_t number(std::string_view key, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(fmt::format("fault: {}={} is not a whole number", key, text));
  return value;
}

// Parses a rank or a rail.
std::uint64_t small(std::string_view key, std::string_view text) {
  const std::uint64_t value = number(key, text);
  if (value > 1u << 24) throw Error(fmt::format("fault: {}={} is too large", key, text));
  return value;
}

}  // namespace

Fault fault_from(std::string_view text) {
  Fault f;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  if (kind == "flip")
    f.kind = Fault::Kind::kFlip;
  else if (kind == "drop")
    f.kind = Fault::Kind::kDrop;
  else if (kind == "delay")
    f.kind = Fault::Kind::kDelay;
  else
    throw Error(fmt::format("fault '{}' is not one of flip, drop, delay", kind));
  std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, std::min(rest.find(','), rest.size()));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    if (key == "rank")
      f.rank = static_cast<Rank>(small(key, value));
    else if (key == "link")
      f.link = value;
    else if (key == "rail")
      f.rail = static_cast<int>(small(key, value));
    else if (key == "nth")
      f.nth = std::max<std::uint64_t>(1, number(key, value));
    else if (key == "every")
      f.every = number(key, value);
    else if (key == "times")
      f.times = number(key, value);
    else if (key == "repeats")
      f.repeats = number(key, value) != 0;
    else if (key == "min")
      f.min_bytes = number(key, value);
    else if (key == "seed")
      f.seed = number(key, value);
    else if (key == "polls")
      f.polls = number(key, value);
    else
      throw Error(
          fmt::format("fault: '{}' is not one of rank, link, rail, nth, every, times, repeats, "
                      "min, seed, polls",
                      key));
  }
  return f;
}

namespace {
std::string all_faults;
}

void set_faults(std::string text) { all_faults = std::move(text); }
const std::string& faults() { return all_faults; }

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const Fault& fault, Rank me, int rail) {
  if ((fault.rank != kNoRank && fault.rank != me) || (fault.rail >= 0 && fault.rail != rail) ||
      (!fault.link.empty() && fault.link != inner->caps().name))
    return inner;
  return std::make_unique<Faulty>(std::move(inner), fault, me);
}

}  // namespace weft
