// At most one receive of a header is posted for each peer; the receive of its message is posted
// when the header has arrived. So receives are posted in the order of the peer's sends.
#include "messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft_torch {

// The end of one of the mailbox's requests.
struct Mailbox::Event {
  std::shared_ptr<Mailbox> box;
  std::function<void(Event&)> done;
  weft_result_t result = WEFT_OK;
  int rank = WEFT_NO_RANK;
  const char* text = "";
};

void Mailbox::on_event(void* argument, weft_result_t result, int rank, const char* text) {
  const std::unique_ptr<Event> event(static_cast<Event*>(argument));
  event->result = result;
  event->rank = rank;
  event->text = text;
  try {
    event->done(*event);
  } catch (const std::exception& e) {  // must not reach weft's threads
    TORCH_WARN("weft: a message: ", e.what());
  }
}

void Mailbox::send(const at::Tensor& tensor, int to, int tag,
                   const c10::intrusive_ptr<WeftWork>& work) {
  const Elements e = moved("send", tensor);
  auto head = std::make_shared<Head>(Head{tag, static_cast<std::int64_t>(tensor.nbytes())});
  auto pending = std::make_shared<Pending>();
  pending->kept = {tensor};
  pending->buffers = {head};
  pending->requests.resize(2);
  weft_result_t result;
  {
    const std::lock_guard lock(mutex_);
    result = weft_send(comm_, head.get(), sizeof *head, WEFT_UINT8, to, &pending->requests[0]);
    if (result == WEFT_OK)
      result = weft_send(comm_, e.data, tensor.nbytes(), WEFT_UINT8, to, &pending->requests[1]);
  }
  std::erase(pending->requests, nullptr);
  if (result != WEFT_OK)
    std::rethrow_exception(
        failure_of(work->call(), result, weft_last_error_rank(), weft_last_error()));
  work->under_way(std::move(pending));
}

void Mailbox::receive(const at::Tensor& tensor, int from, int tag,
                      const c10::intrusive_ptr<WeftWork>& work) {
  (void)moved("recv", tensor);
  const std::lock_guard lock(mutex_);
  Receive mine{tensor, tag, ++order_, work};
  const int n = static_cast<int>(peers_.size());
  for (int peer = from < 0 ? 0 : from; peer < (from < 0 ? n : from + 1); ++peer) {
    auto& early = peers_[static_cast<std::size_t>(peer)].early;
    const auto found =
        std::ranges::find_if(early, [&](const auto& e) { return e->tag == tag && !e->wanted; });
    if (found == early.end()) continue;
    const std::shared_ptr<Early> message = *found;
    if (message->here) {
      early.erase(found);
      deliver(*message, mine, peer);
    } else {
      message->wanted = std::make_unique<Receive>(std::move(mine));
    }
    return;
  }
  if (from >= 0) {
    peers_[static_cast<std::size_t>(from)].waiting.push_back(std::move(mine));
    listen(from);
    return;
  }
  any_.push_back(std::move(mine));
  const int me = work->call().rank;
  for (int peer = 0; peer < n && !any_.empty(); ++peer)
    if (peer != me) listen(peer);
}

// Posts the receive of the peer's next header, if there is a receive that it may match.
void Mailbox::listen(int peer) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  if (p.head_posted || (p.waiting.empty() && any_.empty())) return;
  p.head_posted = true;
  weft_request_t* request = nullptr;
  const weft_result_t result = weft_recv(comm_, &p.head, sizeof p.head, WEFT_UINT8, peer, &request);
  if (result != WEFT_OK) {
    const std::string why = weft_last_error();
    head_came(peer, result, weft_last_error_rank(), why.c_str());
    return;
  }
  // A receive from any rank may wait for a message that this peer never sends.
  if (p.waiting.empty()) (void)weft_request_set_patient(request);
  auto event = std::make_unique<Event>();
  event->box = shared_from_this();
  event->done = [peer](Event& e) { e.box->head_came(peer, e.result, e.rank, e.text); };
  (void)weft_request_on_done(&request, on_event, event.release());
}

void Mailbox::post(int peer, void* data, std::size_t bytes, std::function<void(Event&)> done) {
  auto event = std::make_unique<Event>();
  event->box = shared_from_this();
  event->done = std::move(done);
  weft_request_t* request = nullptr;
  const weft_result_t result = weft_recv(comm_, data, bytes, WEFT_UINT8, peer, &request);
  if (result == WEFT_OK)
    (void)weft_request_on_done(&request, on_event, event.release());
  else {
    const std::string why = weft_last_error();
    on_event(event.release(), result, weft_last_error_rank(), why.c_str());
  }
}

void Mailbox::head_came(int peer, weft_result_t result, int rank, const char* text) {
  const std::lock_guard lock(mutex_);
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  p.head_posted = false;
  if (result != WEFT_OK) return fail(peer, result, rank, text);
  const Head head = p.head;
  const auto matches = [&](const Receive& r) { return r.tag == head.tag; };
  const auto one = std::ranges::find_if(p.waiting, matches);
  const auto any = std::ranges::find_if(any_, matches);
  const bool from_any = any != any_.end() && (one == p.waiting.end() || any->order < one->order);
  if (from_any || one != p.waiting.end()) {
    auto r = std::make_shared<Receive>(std::move(from_any ? *any : *one));
    if (from_any)
      any_.erase(any);
    else
      p.waiting.erase(one);
    if (static_cast<std::size_t>(head.bytes) == r->tensor.nbytes()) {
      post(peer, r->tensor.data_ptr(), r->tensor.nbytes(),
           [r, peer](Event& e) { end(*r, peer, e); });
      return listen(peer);
    }
    // A message of the wrong size must be received, too, since the peer's next header follows it.
    const auto early = std::make_shared<Early>();
    early->bytes.resize(static_cast<std::size_t>(head.bytes));
    post(peer, early->bytes.data(), early->bytes.size(),
         [r, peer, early](Event&) { deliver(*early, *r, peer); });
    return listen(peer);
  }
  const auto early = std::make_shared<Early>();
  early->tag = static_cast<int>(head.tag);
  early->bytes.resize(static_cast<std::size_t>(head.bytes));
  p.early.push_back(early);
  post(peer, early->bytes.data(), early->bytes.size(), [early, peer](Event& e) {
    Mailbox& box = *e.box;
    const std::lock_guard guard(box.mutex_);
    early->here = e.result == WEFT_OK;
    if (!early->wanted) return;
    std::erase(box.peers_[static_cast<std::size_t>(peer)].early, early);
    if (early->here)
      deliver(*early, *early->wanted, peer);
    else
      end(*early->wanted, peer, e);
  });
  listen(peer);
}

void Mailbox::fail(int peer, weft_result_t result, int rank, const char* text) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  Event event;
  event.result = result;
  event.rank = rank;
  event.text = text;
  // The first failure of a communicator ends all its calls.
  for (std::deque<Receive>* all : {&p.waiting, &any_})
    for (Receive& r : std::exchange(*all, {})) end(r, peer, event);
}

void Mailbox::end(Receive& r, int from, const Event& e) {
  const auto failure =
      e.result == WEFT_OK ? nullptr : failure_of(r.work->call(), e.result, e.rank, e.text);
  r.work->end(failure, from);
}

void Mailbox::deliver(Early& early, Receive& r, int from) {
  if (early.bytes.size() == r.tensor.nbytes()) {
    if (!early.bytes.empty())
      std::memcpy(r.tensor.data_ptr(), early.bytes.data(), early.bytes.size());
    r.work->end(nullptr, from);
    return;
  }
  const std::string why = fmt::format(
      "rank {} sent {} bytes with tag {}, but this tensor has {}: receive into a "
      "tensor of the same size",
      from, early.bytes.size(), r.tag, r.tensor.nbytes());
  r.work->end(failure_of(r.work->call(), WEFT_INVALID_ARGUMENT, WEFT_NO_RANK, why.c_str()), from);
}

}  // namespace weft_torch
