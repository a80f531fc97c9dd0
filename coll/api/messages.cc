// Communicator's messages. This file does not depend on collectives.
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/gpu/begin.h"
#include "coll/runtime/arguments.h"
#include "coll/runtime/core.h"
#include "coll/tasks/message_task.h"

namespace weft {
Request Communicator::message(bool send, void* data, std::size_t count, DType type, Rank peer,
                              bool blocking) {
  const char* verb = send ? "send" : "recv";
  if (!state_) return Request(empty_communicator(verb));
  GroupState& g = *state_;
  Request handle(state_, nullptr);
  handle.status_ = check_message(send, data, count, type, peer, g.ranks.size());
  const Message one{send, peer, data, count, type};
  std::vector<std::pair<std::size_t, std::size_t>> own;
  if (handle.status_.ok()) handle.status_ = check_own_messages(verb, {&one, 1}, g.me, own);
  if (!handle.status_.ok()) return handle;
  if (ordered_ || (count > 0 && on_device(data))) {
    const auto stream = ordered_ ? std::optional(stream_) : std::nullopt;
    handle.op_ = begin_messages(*device(), g, verb, {&one, 1}, stream, blocking, handle.status_);
    return handle;
  }
  Core& core = *g.core;
  const CoreLock lock(core.mutex);
  if (g.broken.load(std::memory_order_relaxed)) {
    handle.status_ = g.failure;
    return handle;
  }
  core.waiting.come_by();
  handle.op_ = MessageTask::begin(g, send, peer, data, count, type);
  core.waiting.wake_server();
  return handle;
}
Request Communicator::send_async(const void* data, std::size_t count, DType type, Rank to) {
  return message(true, const_cast<void*>(data), count, type, to, false);
}
Request Communicator::recv_async(void* data, std::size_t count, DType type, Rank from) {
  return message(false, data, count, type, from, false);
}
Status Communicator::send(const void* data, std::size_t count, DType type, Rank to) {
  return message(true, const_cast<void*>(data), count, type, to, true).wait();
}
Status Communicator::recv(void* data, std::size_t count, DType type, Rank from) {
  return message(false, data, count, type, from, true).wait();
}

// ---- several messages ----------------------------------------------------------------------

Status Communicator::exchange(std::span<const Message> messages) {
  return start_exchange(messages, true).wait();
}
Batch Communicator::exchange_async(std::span<const Message> messages) {
  return start_exchange(messages, false);
}

Batch Communicator::start_exchange(std::span<const Message> messages, bool blocking) {
  Batch batch;
  for (const Message& m : messages) {  // starts all or none
    batch.status_ =
        check_message(m.sends, m.data, m.count, m.type, m.peer, static_cast<std::size_t>(size()));
    if (!batch.status_.ok()) return batch;
  }
  std::vector<std::pair<std::size_t, std::size_t>> own;
  batch.status_ = check_own_messages("exchange", messages, rank(), own);
  if (!batch.status_.ok()) return batch;
  const auto begin_there = [&](std::span<const Message> some, std::optional<void*> stream) {
    Request handle(state_, nullptr);
    handle.op_ =
        begin_messages(*device(), *state_, "exchange", some, stream, blocking, handle.status_);
    batch.handles_.push_back(std::move(handle));
  };
  if (ordered_) {
    begin_there(messages, stream_);
    return batch;
  }
  {
    const GroupState& g = state();
    const CoreLock lock(g.core->mutex);
    if (g.broken) batch.status_ = g.failure;
  }
  if (!batch.status_.ok()) return batch;
  batch.handles_.reserve(messages.size());
  // Messages of a rank to itself.
  for (const auto& [sent, received] : own) {
    const Message both[] = {messages[sent], messages[received]};
    const std::size_t bytes = both[0].count * size_of(both[0].type);
    if (bytes > 0 && (on_device(both[0].data) || on_device(both[1].data)))
      begin_there(both, std::nullopt);
    else if (bytes > 0)
      std::memmove(both[1].data, both[0].data, bytes);
  }
  for (const bool sends : {false, true})  // receives first: no unexpected messages
    for (const Message& m : messages)
      if (m.sends == sends && m.peer != rank())
        batch.handles_.push_back(message(m.sends, m.data, m.count, m.type, m.peer, false));
  return batch;
}

bool Batch::test() {
  bool over = true;
  for (Request& h : handles_) over = h.test() && over;
  return over;
}

Status Batch::wait() {
  for (Request& h : handles_) {
    const Status s = h.wait();
    if (status_.ok()) status_ = s;
  }
  handles_.clear();
  return status_;
}

}  // namespace weft
