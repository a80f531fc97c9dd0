// UCP without a network: this header defines its functions, which replace the library's in one test
// program. Tagged messages, endpoints and requests; the test plays every remote peer.
//
// Misuse aborts the program: a foreign address, freed memory, a leaked request. Include it in one
// source file only.
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
#include <vector>

namespace weft::testing {

inline void demand_ucx(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "fake ucx: %s\n", what);
  std::abort();
}

class FakeUcx {
 public:
  static constexpr std::string_view kAddress = "the address of a worker, which UCX alone reads";

  struct Endpoint {
    ucp_err_handler_t handler{};
  };
  struct Request {
    Endpoint* endpoint = nullptr;  // endpoint of a send
    ucp_tag_t tag = 0, mask = 0;
    ucp_request_param_t param{};
    std::vector<ucp_dt_iov_t> pieces;
    std::string message;  // content of a matched receive
    bool matched = false;
    bool done = false;
    bool freed = false;
    ucs_status_t status = UCS_INPROGRESS;
  };
  struct Message {
    ucp_tag_t tag = 0;
    std::string bytes;
  };

  static FakeUcx& get() {
    static FakeUcx fake;
    return fake;
  }

  // ---- controls of a test ----------------------------------------------------------------------

  // Queues a message that arrives during the next calls of ucp_worker_progress().
  void arrive(ucp_tag_t tag, std::string bytes) { coming.push_back({tag, std::move(bytes)}); }
  // Completes the oldest send and returns its bytes.
  std::string leave() {
    for (Request& r : requests) {
      if (!r.endpoint || r.done) continue;
      std::string bytes;
      for (const ucp_dt_iov_t& piece : r.pieces)
        bytes.append(static_cast<const char*>(reached(piece.buffer)), piece.length);
      finish(r, UCS_OK, 0);
      return bytes;
    }
    return {};
  }
  void lose(Endpoint& endpoint) {
    endpoint.handler.cb(endpoint.handler.arg, reinterpret_cast<ucp_ep_h>(&endpoint),
                        UCS_ERR_CONNECTION_RESET);
  }

  std::function<void()> on_progress;
  bool cuda = false;                         // UCX was built with CUDA
  std::function<void*(void*)> reach_memory;  // where the test can access a buffer passed to UCX
  bool slow = false;                         // a message's bytes arrive after its match
  bool prompt = false;                       // sends complete without the test
  std::list<Endpoint> endpoints;
  std::list<Request> requests;

  // ---- called by the functions below ------------------------------------------------------------

  Request& make(const void* buffer, std::size_t count, const ucp_request_param_t& param) {
    Request& r = requests.emplace_back();
    r.param = param;
    const bool typed = (param.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0;
    if (typed && param.datatype == ucp_dt_make_iov()) {
      const auto* const pieces = static_cast<const ucp_dt_iov_t*>(buffer);
      r.pieces.assign(pieces, pieces + count);
    } else {
      r.pieces.push_back({const_cast<void*>(buffer), count});
    }
    return r;
  }
  void finish(Request& r, ucs_status_t status, std::size_t length) {
    r.done = true;
    r.status = status;
    const ucp_tag_recv_info_t info{r.tag, length};
    if ((r.param.op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) && !r.freed) {
      if (r.endpoint)
        r.param.cb.send(&r, status, r.param.user_data);
      else
        r.param.cb.recv(&r, status, &info, r.param.user_data);
    }
    sweep();
  }
  void sweep() {
    if (busy > 0) return;
    requests.remove_if([](const Request& r) { return r.done && r.freed; });
  }
  void match(Request& r, Message message) {
    r.matched = true;
    r.tag = message.tag;
    r.message = std::move(message.bytes);
    if (!slow) fill(r);
  }
  void* reached(void* memory) const { return reach_memory ? reach_memory(memory) : memory; }
  void fill(Request& r) {
    std::string_view rest = r.message;
    for (const ucp_dt_iov_t& piece : r.pieces) {
      const std::size_t n = std::min(piece.length, rest.size());
      if (n) std::memcpy(reached(piece.buffer), rest.data(), n);
      rest.remove_prefix(n);
    }
    finish(r, rest.empty() ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED, r.message.size());
  }
  std::list<Message>::iterator find(ucp_tag_t tag, ucp_tag_t mask) {
    return std::find_if(unexpected.begin(), unexpected.end(),
                        [=](const Message& m) { return ((m.tag ^ tag) & mask) == 0; });
  }
  unsigned progress() {
    unsigned n = 0;
    if (on_progress) on_progress();
    ++busy;
    for (auto it = requests.begin(); it != requests.end(); ++it)
      if (it->matched && !it->done) fill(*it), ++n;
    if (prompt)
      while (std::any_of(requests.begin(), requests.end(),
                         [](const Request& r) { return r.endpoint && !r.done; }))
        leave(), ++n;
    if (!coming.empty()) {
      Message m = std::move(coming.front());
      coming.pop_front();
      const auto r = std::find_if(requests.begin(), requests.end(), [&](const Request& q) {
        return !q.endpoint && !q.matched && !q.done && ((q.tag ^ m.tag) & q.mask) == 0;
      });
      if (r == requests.end())
        unexpected.push_back(std::move(m));
      else
        match(*r, std::move(m));
      ++n;
    }
    --busy;
    sweep();
    return n;
  }
  // Forced close: cancels pending requests.
  void close(Endpoint* endpoint) {
    for (Request& r : requests)
      if (r.endpoint == endpoint && !r.done) finish_later(r);
    endpoints.remove_if([=](const Endpoint& e) { return &e == endpoint; });
  }
  void finish_later(Request& r) {
    ++busy;
    finish(r, UCS_ERR_CANCELED, 0);
    --busy;
  }

  std::deque<Message> coming;
  std::list<Message> unexpected;
  Message taken;  // by ucp_tag_probe_nb()
  int busy = 0;   // depth of calls that iterate `requests`
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
ucs_status_t ucp_context_query(ucp_context_h, ucp_context_attr_t* has) {
  has->memory_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
  if (FakeUcx::get().cuda) has->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
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
  fake.coming.clear();
  fake.unexpected.clear();
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
  // As in UCX, only the address itself contains its length.
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

ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h endpoint, const void* buffer, std::size_t count,
                                  ucp_tag_t tag, const ucp_request_param_t* param) {
  FakeUcx::Request& r = FakeUcx::get().make(buffer, count, *param);
  r.endpoint = reinterpret_cast<FakeUcx::Endpoint*>(endpoint);
  r.tag = tag;
  return &r;
}
ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h, void* buffer, std::size_t count, ucp_tag_t tag,
                                  ucp_tag_t mask, const ucp_request_param_t* param) {
  FakeUcx& fake = FakeUcx::get();
  FakeUcx::Request& r = fake.make(buffer, count, *param);
  r.tag = tag;
  r.mask = mask;
  if (const auto found = fake.find(tag, mask); found != fake.unexpected.end()) {
    FakeUcx::Message m = std::move(*found);
    fake.unexpected.erase(found);
    fake.match(r, std::move(m));
  }
  return &r;
}
ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h, ucp_tag_t tag, ucp_tag_t mask, int remove,
                                   ucp_tag_recv_info_t* info) {
  FakeUcx& fake = FakeUcx::get();
  const auto found = fake.find(tag, mask);
  if (found == fake.unexpected.end()) return nullptr;
  *info = {found->tag, found->bytes.size()};
  if (remove) {
    fake.taken = std::move(*found);
    fake.unexpected.erase(found);
  }
  return reinterpret_cast<ucp_tag_message_h>(&fake.taken);
}
ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h, void* buffer, std::size_t count,
                                      ucp_tag_message_h, const ucp_request_param_t* param) {
  FakeUcx& fake = FakeUcx::get();
  FakeUcx::Request& r = fake.make(buffer, count, *param);
  fake.match(r, std::move(fake.taken));
  return &r;
}

ucs_status_t ucp_request_check_status(void* request) {
  return static_cast<FakeUcx::Request*>(request)->status;
}
void ucp_request_cancel(ucp_worker_h, void* request) {
  auto& r = *static_cast<FakeUcx::Request*>(request);
  // A receive that is matched is not canceled.
  if (!r.endpoint && !r.matched && !r.done) FakeUcx::get().finish_later(r);
}
void ucp_request_free(void* request) {
  auto& r = *static_cast<FakeUcx::Request*>(request);
  demand_ucx(!r.freed, "a request is freed twice");
  r.freed = true;
  r.done = true;  // if pending: freed without a callback
  FakeUcx::get().sweep();
}

}  // extern "C"
