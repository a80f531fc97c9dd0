// Queues a rank's letters (out-of-band messages) until they are received.
#include "transport/job/mailbox.h"

#include <exception>
#include <utility>

#include "topo/base/log.h"

namespace weft {

class PostOffice::Box final : public Mailbox {
 public:
  Box(std::shared_ptr<PostOffice> office, std::uint32_t number)
      : office_(std::move(office)), number_(number), lying_(office_->box(number)) {}
  void send(Rank to, std::string_view bytes) noexcept override {
    office_->send(number_, to, bytes);
  }
  bool receive(Letter& letter) noexcept override {
    if (!lying_->any.load(std::memory_order_relaxed)) return false;
    const MutexLock lock(lying_->mutex);
    auto& letters = lying_->letters;
    if (letters.empty()) return false;
    letter = std::move(letters.front());
    letters.pop_front();
    if (--lying_->of[letter.from] == 0) lying_->of.erase(letter.from);
    if (!letters.empty()) return true;
    lying_->any.store(false, std::memory_order_relaxed);
    drain(lying_->wake);
    return true;
  }
  bool waiting() const noexcept override { return lying_->any.load(std::memory_order_relaxed); }
  int fd() const noexcept override { return lying_->wake.get(); }

 private:
  std::shared_ptr<PostOffice> office_;
  std::uint32_t number_;
  std::shared_ptr<Lying> lying_;
};

std::unique_ptr<Mailbox> PostOffice::open() {
  std::uint32_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = opened_++;
  }
  return std::make_unique<Box>(shared_from_this(), number);
}

std::shared_ptr<PostOffice::Lying> PostOffice::box(std::uint32_t number) {
  const MutexLock lock(mutex_);
  while (boxes_.size() <= number) boxes_.push_back(std::make_shared<Lying>());
  return boxes_[number];
}

void PostOffice::deliver(std::uint32_t number, Rank from, std::string_view bytes) {
  if (number >= kMostBoxes) return;
  const std::shared_ptr<Lying> to = box(number);
  const MutexLock lock(to->mutex);
  int& lying = to->of[from];
  if (lying >= kMostLying) {
    log().debug("weft: a message from rank {} is dropped: its mailbox has {} already", from, lying);
    return;
  }
  ++lying;
  to->letters.push_back({from, std::string(bytes)});
  if (!to->any.exchange(true, std::memory_order_relaxed)) ring(to->wake);
}

void PostOffice::send(std::uint32_t number, Rank to, std::string_view bytes) noexcept {
  try {
    const MutexLock lock(carrying_);
    if (carry_ && bytes.size() <= Mailbox::kMostBytes) carry_(number, to, bytes);
  } catch (const std::exception& e) {
    log().debug("weft: a message to rank {} could not be sent: {}", to, e.what());
  }
}

void PostOffice::close() noexcept {
  const MutexLock lock(carrying_);
  carry_ = nullptr;
}

}  // namespace weft
