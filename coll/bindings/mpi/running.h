// One MPI collective that weft runs: from its start to the user's buffers.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "coll/bindings/mpi/types.h"

// Both forms of a Communicator's collective.
#define WEFT_FORMS(name) &Communicator::name, &Communicator::name##_async

namespace weft::mpi {

// A collective in flight. Keeps what the collective needs until the end: the communicator, and
// copies of buffers.
class Running {
 public:
  Running(MPI_Comm comm, const Communicator& by, bool waits)
      : comm_(comm), by_(by), waits_(waits) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();

  MPI_Comm comm() const { return comm_; }
  // Called before the program frees comm().
  void leave_communicator();
  std::size_t me() const { return static_cast<std::size_t>(by_.rank()); }
  int ranks() const { return by_.size(); }
  // Throws Refused if root is not a rank.
  bool is_root(int root) const {
    expect(root >= 0 && root < ranks());
    return by_.rank() == root;
  }
  // One block per rank. Throws Refused if an array is missing.
  Layout blocks(Numbers counts, Numbers at) const {
    expect(counts && at);
    return {0, ranks(), counts, at};
  }

  // Starts a collective of weft by one of its two forms, which are WEFT_FORMS(name); a blocking
  // call also ends the collective.
  template <class Blocking, class Async, class... Args>
  void begin(Blocking blocking, Async async, const Args&... args) {
    if (waits_)
      status_ = (by_.*blocking)(args...);
    else
      request_ = (by_.*async)(args...);
  }
  void exchange(const std::vector<Message>& messages) {
    if (waits_)
      status_ = by_.exchange(messages);
    else
      batch_ = by_.exchange_async(messages);
    is_batch_ = true;
  }

  // Keeps a buffer as long as the collective. An output is unpacked at the end.
  Bytes& keep(Bytes&& bytes, bool output = false) {
    Bytes& kept = bytes_[nbytes_++] = std::move(bytes);
    if (output) outputs_[noutputs_++] = &kept;
    if (output && !waits_) kept.keep_type();
    return kept;
  }
  // Memory for a result that goes to `to` at the end.
  std::byte* keep_result(void* to, std::size_t bytes) {
    result_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    result_to_ = to;
    result_bytes_ = bytes;
    return result_.get();
  }

  // Makes progress; true when the collective is over.
  bool test() { return waits_ || (is_batch_ ? batch_.test() : request_.test()); }
  // Called at the end: copies the results to the user, and returns the result of MPI's call.
  int end();
  // Called when the collective is over.
  bool failed();

 private:
  MPI_Comm comm_;                                    // MPI_COMM_NULL: freed
  MPI_Errhandler errhandler_ = MPI_ERRHANDLER_NULL;  // error handler of a freed communicator
  Communicator by_;
  const bool waits_;
  bool is_batch_ = false;
  Status status_;
  Request request_;
  Batch batch_;
  std::array<Bytes, 2> bytes_;
  std::array<Bytes*, 2> outputs_{};
  std::size_t nbytes_ = 0, noutputs_ = 0;
  std::unique_ptr<std::byte[]> result_;
  void* result_to_ = nullptr;
  std::size_t result_bytes_ = 0;
};

}  // namespace weft::mpi
