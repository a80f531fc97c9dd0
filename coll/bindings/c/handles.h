// What the handles of weft.h hold, and how any failure becomes a result and a text.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/bindings/c/weft.h"

struct weft_world {
  std::unique_ptr<weft::World> world;
};

struct weft_comm {
  weft::Communicator comm;
};

// One call, or the calls of a group: any number of collectives and messages.
struct weft_request {
  std::vector<weft::Request> calls;
  std::vector<weft::Batch> messages;
};

namespace weft::c {

// Sets the calling thread's last error, and returns the result.
weft_result_t failed(weft_result_t result, std::string text, Rank rank = kNoRank) noexcept;
weft_result_t failed(const Status& status) noexcept;
// Reports the exception that is being handled as a failure.
weft_result_t caught() noexcept;

inline weft_result_t result_of(const Status& status) noexcept {
  return status.ok() ? WEFT_OK : failed(status);
}

// Runs `call`, which returns a weft_result_t or nothing, and turns its exceptions into results.
template <typename Call>
weft_result_t guarded(Call&& call) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return WEFT_OK;
    } else {
      return call();
    }
  } catch (...) {
    return caught();
  }
}

// Returns WEFT_INVALID_ARGUMENT, naming the argument that is null.
weft_result_t null_argument(const char* function, const char* argument) noexcept;

// The operator with this number; throws StatusError if there is none.
Reduction reduction_of(weft_op_t op);

// Whether all calls of the request are over; makes progress once.
bool over(weft_request& request);
// Takes the handle from the caller, waits, and returns the result of its calls.
weft_result_t end(weft_request_t** request);
// Passes the handle to the caller or, if its calls have failed already, returns the failure.
weft_result_t hand_over(std::unique_ptr<weft_request> made, weft_request_t** request);

}  // namespace weft::c

// Returns from a function of weft.h when one of its pointers is null.
#define WEFT_C_NOT_NULL(pointer) \
  if (!(pointer)) return weft::c::null_argument(__func__, #pointer)
