// A transport that passes every call to an inner transport. A class that watches or changes some
// calls derives from Decorator and overrides these calls.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace weft {

class Decorator : public Transport {
 public:
  explicit Decorator(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  void post(std::span<const Transfer> transfers) noexcept override { inner_->post(transfers); }
  std::size_t poll(std::span<Completion> out) noexcept override { return inner_->poll(out); }
  bool release(std::uint64_t token) noexcept override { return inner_->release(token); }
  bool verify(std::uint64_t token, std::uint32_t crc) noexcept override {
    return inner_->verify(token, crc);
  }
  void cancel(std::uint32_t id_high) noexcept override { inner_->cancel(id_high); }
  void end_buffer(std::uint64_t serial) noexcept override { inner_->end_buffer(serial); }
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override {
    inner_->forget(tag, mask);
  }
  void* stage(std::size_t bytes) noexcept override { return inner_->stage(bytes); }
  void unstage(void* staged) noexcept override { inner_->unstage(staged); }
  bool mapped(const void* data, std::size_t bytes) const noexcept override {
    return inner_->mapped(data, bytes);
  }
  Caps caps() const override { return inner_->caps(); }
  std::optional<std::uint64_t> moved_bytes() const noexcept override {
    return inner_->moved_bytes();
  }
  Status cause(Rank peer) const override { return inner_->cause(peer); }
  bool disputed(Rank peer, Head& theirs) const noexcept override {
    return inner_->disputed(peer, theirs);
  }
  Rank unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override {
    return inner_->unclaimed(peer, tag, mask, theirs);
  }
  std::uint64_t offer_board() noexcept override { return inner_->offer_board(); }
  void withdraw_board(std::uint64_t part) noexcept override { inner_->withdraw_board(part); }
  std::unique_ptr<Board> board(std::span<const Rank> members,
                               std::span<const std::uint64_t> parts) override {
    return inner_->board(members, parts);
  }
  std::unique_ptr<Board> fixed_board(std::span<const Rank> members, std::uint32_t id) override {
    return inner_->fixed_board(members, id);
  }
  void sever(Rank peer) noexcept override { inner_->sever(peer); }
  std::string reopen(Rank peer) noexcept override { return inner_->reopen(peer); }
  bool meet(Rank peer, std::string_view theirs) noexcept override {
    return inner_->meet(peer, theirs);
  }
  void leave() noexcept override { inner_->leave(); }
  bool arm(std::vector<int>& fds) noexcept override { return inner_->arm(fds); }

 protected:
  std::unique_ptr<Transport> inner_;
};

}  // namespace weft
