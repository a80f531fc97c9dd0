// While alive, thread creation fails in this process, as at the limit of processes: the default
// stack size is too large to allocate.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace weft::testing {

class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t endless;
    pthread_getattr_default_np(&endless);
    pthread_attr_setstacksize(&endless, std::size_t{1} << 46);
    pthread_setattr_default_np(&endless);
    pthread_attr_destroy(&endless);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace weft::testing
