// Messages with tags and receives from any rank, which weft lacks: each message is preceded by a
// header with its tag and size, by which the receiver finds the matching receive.
#pragma once

#include <weft.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tensors.h"
#include "work.h"

namespace weft_torch {

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  static constexpr int kAnySource = -1;
  // The communicator must live until everything in flight on it has ended.
  Mailbox(weft_comm_t* comm, int size) : comm_(comm), peers_(static_cast<std::size_t>(size)) {}

  // Starts to send a tensor; the Work waits for the send.
  void send(const at::Tensor& tensor, int to, int tag, const c10::intrusive_ptr<WeftWork>& work);
  // The Work ends when a message with this tag has arrived, from `from` or from any rank.
  void receive(const at::Tensor& tensor, int from, int tag,
               const c10::intrusive_ptr<WeftWork>& work);

 private:
  struct Head {
    std::int64_t tag;
    std::int64_t bytes;
  };
  struct Receive {
    at::Tensor tensor;
    int tag;
    std::uint64_t order;
    c10::intrusive_ptr<WeftWork> work;
  };
  // An unexpected message: there was no matching receive when its header arrived.
  struct Early {
    int tag;
    std::vector<char> bytes;
    bool here = false;
    std::unique_ptr<Receive> wanted;  // a receive that was posted meanwhile
  };
  struct Peer {
    Head head{};
    bool head_posted = false;
    std::deque<Receive> waiting;
    std::deque<std::shared_ptr<Early>> early;
  };
  struct Event;

  void listen(int peer);
  void head_came(int peer, weft_result_t result, int rank, const char* text);
  void post(int peer, void* data, std::size_t bytes, std::function<void(Event&)> done);
  void fail(int peer, weft_result_t result, int rank, const char* text);
  static void end(Receive& receive, int from, const Event& event);
  static void deliver(Early& early, Receive& receive, int from);
  static void on_event(void* argument, weft_result_t result, int rank, const char* text);

  weft_comm_t* const comm_;
  // Recursive, since weft calls back at once, on this thread, for requests that are already over.
  std::recursive_mutex mutex_;
  std::uint64_t order_ = 0;
  std::vector<Peer> peers_;
  std::deque<Receive> any_;
};

}  // namespace weft_torch
