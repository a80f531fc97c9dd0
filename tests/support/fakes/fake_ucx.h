// UCP without a network, for one program: its functions are defined here, and those of the library
// are not reached. Active messages, endpoints, requests; the other end of all is the test.
//
// What UCX would suffer from ends the program: an address that it did not make, memory that is
// gone, a request or a descriptor that is left. Include it in one source only.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <string_view>

namespace weft::testing {

inline void demand_ucx(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "fake ucx: %s\n", what);
  std::abort();
}

class FakeUcx {
 public:
  static constexpr std::string_view kAddress = "the address of a worker, which UCX alone reads";
  static constexpr std::size_t kRendezvous = 2048;  // messages from this size on

  struct Endpoint {
    ucp_err_handler_t handler{};
  };
  // A message that the transport sends, or one whose bytes it fetches.
  struct Request {
    Endpoint* endpoint = nullptr;  // of a fetch: the one that the message came by
    bool send = false;
    ucp_request_param_t param{};
    std::string header;
    const void* data = nullptr;  // of a send
    void* to = nullptr;          // of a fetch
    std::string bytes;           // of a fetch
    std::size_t length = 0;
    bool done = false;
    bool freed = false;
  };
  // What comes: a front, and bytes after it.
  struct Message {
    std::string header, bytes;
    bool rendezvous = false;
    bool named = false;  // with its endpoint
  };
  struct Sent {
    std::string header, bytes;
  };

  static FakeUcx& get() {
    static FakeUcx fake;
    return fake;
  }

  // ---- what a test does ----------------------------------------------------------------------

  // Comes with the next calls of ucp_worker_progress().
  void arrive(std::string header, std::string bytes) {
    const bool rendezvous = bytes.size() >= kRendezvous;
    coming.push_back({std::move(header), std::move(bytes), rendezvous, !endpoints.empty()});
  }
  // The oldest send leaves.
  Sent leave() {
    for (Request& r : requests) {
      if (!r.send || r.done) continue;
      Sent sent{r.header, std::string(static_cast<const char*>(r.data), r.length)};
      finish(r, UCS_OK);
      return sent;
    }
    return {};
  }
  void lose(Endpoint& endpoint) {
    endpoint.handler.cb(endpoint.handler.arg, reinterpret_cast<ucp_ep_h>(&endpoint),
                        UCS_ERR_CONNECTION_RESET);
  }

  std::function<void()> on_progress;
  bool slow = false;    // a rendezvous does not end by itself
  bool prompt = false;  // sends leave by themselves
  std::list<Endpoint> endpoints;
  std::list<Request> requests;
  std::list<Message> kept;  // rendezvous whose descriptor the transport holds

  // ---- what the functions below do -----------------------------------------------------------

  void finish(Request& r, ucs_status_t status) {
    r.done = true;
    if (!r.freed) {
      if (r.send)
        r.param.cb.send(&r, status, r.param.user_data);
      else
        r.param.cb.recv_am(&r, status, r.length, r.param.user_data);
    }
    sweep();
  }
  void sweep() {
    if (busy > 0) return;
    requests.remove_if([](const Request& r) { return r.done && r.freed; });
  }
  void fill(Request& r) {
    if (!r.bytes.empty()) std::memcpy(r.to, r.bytes.data(), r.bytes.size());
    finish(r, UCS_OK);
  }
  void give(Message m) {
    ucp_am_recv_param_t param{};
    if (m.named && !endpoints.empty()) {
      param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
      param.reply_ep = reinterpret_cast<ucp_ep_h>(&endpoints.front());
    }
    const std::string header = m.header;  // gone after the call, as UCX's is
    if (!m.rendezvous) {
      std::string bytes = m.bytes;
      const ucs_status_t status =
          handler.cb(handler.arg, header.data(), header.size(), bytes.data(), bytes.size(), &param);
      return demand_ucx(status == UCS_OK, "eager bytes cannot be held");
    }
    param.recv_attr |= UCP_AM_RECV_ATTR_FLAG_RNDV;
    Message& held = kept.emplace_back(std::move(m));
    const std::size_t length = held.bytes.size();
    fetched = false;
    const ucs_status_t status =
        handler.cb(handler.arg, header.data(), header.size(), &held, length, &param);
    if (status == UCS_OK && !fetched) kept.pop_back();
  }
  std::list<Message>::iterator find(const void* descriptor) {
    const auto at =
        std::find_if(kept.begin(), kept.end(), [=](const Message& m) { return &m == descriptor; });
    demand_ucx(at != kept.end(), "no such descriptor");
    return at;
  }
  unsigned progress() {
    unsigned n = 0;
    if (on_progress) on_progress();
    ++busy;
    for (auto it = requests.begin(); it != requests.end() && !slow; ++it)
      if (!it->send && !it->done) fill(*it), ++n;
    if (prompt)
      while (std::any_of(requests.begin(), requests.end(),
                         [](const Request& r) { return r.send && !r.done; }))
        leave(), ++n;
    if (!coming.empty()) {
      Message m = std::move(coming.front());
      coming.pop_front();
      give(std::move(m));
      ++n;
    }
    --busy;
    sweep();
    return n;
  }
  // By force: what is under way ends.
  void close(Endpoint* endpoint) {
    ++busy;
    for (Request& r : requests)
      if (r.endpoint == endpoint && !r.done) finish(r, UCS_ERR_CANCELED);
    --busy;
    sweep();
    endpoints.remove_if([=](const Endpoint& e) { return &e == endpoint; });
  }

  std::deque<Message> coming;
  ucp_am_handler_param_t handler{};
  bool fetched = false;  // in the handler's call
  int busy = 0;          // with `requests`
};

}  // namespace weft::testing

extern "C" {

using weft::testing::demand_ucx;
using weft::testing::FakeUcx;

ucs_status_t ucp_config_read(const char*, const char*, ucp_config_t** config) {
  *config = reinterpret_cast<ucp_config_t*>(&FakeUcx::get());
  return UCS_OK;
}
void ucp_config_release(ucp_config_t*) {}
ucs_status_t ucp_config_modify(ucp_config_t*, const char*, const char*) { return UCS_OK; }

ucs_status_t ucp_init_version(unsigned, unsigned, const ucp_params_t*, const ucp_config_t*,
                              ucp_context_h* context) {
  *context = reinterpret_cast<ucp_context_h>(&FakeUcx::get());
  return UCS_OK;
}
void ucp_cleanup(ucp_context_h) {}
ucs_status_t ucp_context_query(ucp_context_h, ucp_context_attr_t* attributes) {
  attributes->memory_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
  return UCS_OK;
}
ucs_status_t ucp_worker_query(ucp_worker_h, ucp_worker_attr_t* attributes) {
  attributes->max_am_header = 256;
  return UCS_OK;
}
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h, const ucp_am_handler_param_t* param) {
  FakeUcx::get().handler = *param;
  return UCS_OK;
}
ucs_status_t ucp_worker_create(ucp_context_h, const ucp_worker_params_t*, ucp_worker_h* worker) {
  *worker = reinterpret_cast<ucp_worker_h>(&FakeUcx::get());
  return UCS_OK;
}
void ucp_worker_destroy(ucp_worker_h) {
  FakeUcx& fake = FakeUcx::get();
  fake.sweep();
  demand_ucx(fake.endpoints.empty(), "a worker goes before its endpoints");
  demand_ucx(fake.requests.empty(), "a worker goes before its requests");
  demand_ucx(fake.kept.empty(), "a worker goes before its descriptors");
  fake.coming.clear();
}
ucs_status_t ucp_worker_get_efd(ucp_worker_h, int* fd) {
  *fd = -1;
  return UCS_OK;
}
ucs_status_t ucp_worker_arm(ucp_worker_h) { return UCS_OK; }
ucs_status_t ucp_worker_get_address(ucp_worker_h, ucp_address_t** address, std::size_t* length) {
  *address = reinterpret_cast<ucp_address_t*>(const_cast<char*>(FakeUcx::kAddress.data()));
  *length = FakeUcx::kAddress.size();
  return UCS_OK;
}
void ucp_worker_release_address(ucp_worker_h, ucp_address_t*) {}
unsigned ucp_worker_progress(ucp_worker_h) { return FakeUcx::get().progress(); }

ucs_status_t ucp_ep_create(ucp_worker_h, const ucp_ep_params_t* params, ucp_ep_h* endpoint) {
  // As UCX does it: how long an address is, it alone says.
  demand_ucx(std::memcmp(params->address, FakeUcx::kAddress.data(), FakeUcx::kAddress.size()) == 0,
             "an address that UCX did not make");
  auto& made = FakeUcx::get().endpoints.emplace_back();
  made.handler = params->err_handler;
  *endpoint = reinterpret_cast<ucp_ep_h>(&made);
  return UCS_OK;
}
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t*) {
  FakeUcx::get().close(reinterpret_cast<FakeUcx::Endpoint*>(endpoint));
  return nullptr;
}
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h, const ucp_request_param_t*) { return nullptr; }

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned, const void* header,
                                 std::size_t header_length, const void* buffer, std::size_t count,
                                 const ucp_request_param_t* param) {
  FakeUcx::Request& r = FakeUcx::get().requests.emplace_back();
  r.endpoint = reinterpret_cast<FakeUcx::Endpoint*>(endpoint);
  r.send = true;
  r.param = *param;
  r.header.assign(static_cast<const char*>(header), header_length);
  r.data = buffer;
  r.length = count;
  return &r;
}
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h, void* descriptor, void* buffer,
                                      std::size_t count, const ucp_request_param_t* param) {
  FakeUcx& fake = FakeUcx::get();
  const auto message = fake.find(descriptor);
  demand_ucx(count >= message->bytes.size(), "a buffer that is too short");
  FakeUcx::Request& r = fake.requests.emplace_back();
  if (!fake.endpoints.empty()) r.endpoint = &fake.endpoints.front();
  r.param = *param;
  r.to = buffer;
  r.bytes = std::move(message->bytes);
  r.length = r.bytes.size();
  fake.kept.erase(message);
  fake.fetched = true;
  return &r;
}
void ucp_am_data_release(ucp_worker_h, void* descriptor) {
  FakeUcx& fake = FakeUcx::get();
  fake.kept.erase(fake.find(descriptor));
}

ucs_status_t ucp_request_check_status(void* request) {
  return static_cast<FakeUcx::Request*>(request)->done ? UCS_OK : UCS_INPROGRESS;
}
void ucp_request_free(void* request) {
  auto& r = *static_cast<FakeUcx::Request*>(request);
  demand_ucx(!r.freed, "a request is freed twice");
  r.freed = true;
  r.done = true;  // of what is under way: without a call back
  FakeUcx::get().sweep();
}

}  // extern "C"
