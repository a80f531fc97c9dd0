// Wraps any transport as a rail whose NIC reaches fake device memory, so that the layers above can
// be tested without a GPU and without an RDMA NIC.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/fakes/fake_device.h"
#include "transport/decorator.h"
#include "transport/factory/transport_factory.h"

namespace weft {
namespace {

class FakeNic final : public Decorator, private Recovery {
 public:
  FakeNic(std::unique_ptr<Transport> inner, FakeDevice& device)
      : Decorator(std::move(inner)), device_(device) {}
  // Destroys the transport before the buffers that it receives into.
  ~FakeNic() override { inner_.reset(); }

  void post(std::span<const Transfer> transfers) noexcept override {
    for (Transfer t : transfers) {
      if (void* const at = t.data ? device_.alias(t.data) : nullptr) {
        if (t.kind == Transfer::Kind::kRecv) {
          Landing& landing = landings_[t.id];
          landing = {t.peer, t.data, std::vector<std::byte>(t.bytes)};
          t.data = landing.bytes.data();
        } else {
          t.data = at;
        }
      }
      inner_->post({&t, 1});
    }
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    const std::size_t n = inner_->poll(out);
    for (const Completion& c : out.first(n)) {
      const auto landing = landings_.find(c.id);
      if (landing == landings_.end()) continue;
      if (c.code == Code::kOk)
        device_.write_remotely(landing->second.to, std::move(landing->second.bytes));
      landings_.erase(landing);
    }
    return n;
  }
  void cancel(std::uint32_t id_high) noexcept override {
    inner_->cancel(id_high);
    std::erase_if(landings_, [&](const auto& l) { return l.first >> 32 == id_high; });
  }
  Caps caps() const override {
    Caps caps = inner_->caps();
    caps.cuda = true;
    return caps;
  }
  Recovery* recovery() noexcept override { return inner_->recovery() ? this : nullptr; }
  DeviceMemory* device_memory() noexcept override { return this; }

 private:
  void disconnect(Rank peer) noexcept override {
    inner_->recovery()->disconnect(peer);
    std::erase_if(landings_, [&](const auto& l) { return l.second.peer == peer; });
  }
  std::string reopen(Rank peer) noexcept override { return inner_->recovery()->reopen(peer); }
  bool connect(Rank peer, std::string_view theirs) noexcept override {
    return inner_->recovery()->connect(peer, theirs);
  }
  bool reaches_gpu(void* data, std::size_t) noexcept override {
    return device_.alias(data) != nullptr;
  }
  struct Landing {
    Rank peer = kNoRank;
    void* to = nullptr;
    std::vector<std::byte> bytes;
  };
  FakeDevice& device_;
  std::unordered_map<std::uint64_t, Landing> landings_;  // by transfer id
};

std::unique_ptr<Transport> with_fake_nic(const std::string& name, std::unique_ptr<Transport> rail) {
  if (name == "verbs" || device() != fake_device() || !fake_device()->has_nics()) return rail;
  return std::make_unique<FakeNic>(std::move(rail), *fake_device());
}

}  // namespace

void put_fake_nics_on_rails() { set_rail_decorator(with_fake_nic); }

}  // namespace weft
