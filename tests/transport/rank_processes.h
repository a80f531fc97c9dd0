// Ranks as forked processes, for tests in which ranks may die.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "transport/shared_job.h"

namespace weft::testing {

// Runs body(board, rank) in n processes and waits for them. Ranks in `victims` may end by SIGKILL;
// all others must exit with success.
inline void run_ranks(int n, const std::function<void(SharedBoard&, Rank)>& body,
                      const std::vector<Rank>& victims = {}) {
  SharedBoard board(n);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (Rank r = 0; r < n; ++r) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(120);  // turns a hang into a failure
      try {
        body(board, r);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << ": " << e.what();
      }
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    pids.push_back(pid);
  }
  for (Rank r = 0; r < n; ++r) {
    int status = 0;
    ASSERT_EQ(waitpid(pids[static_cast<std::size_t>(r)], &status, 0),
              pids[static_cast<std::size_t>(r)]);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool victim = std::find(victims.begin(), victims.end(), r) != victims.end();
    EXPECT_TRUE(victim ? killed : WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << r << " ended with status " << status;
  }
}

}  // namespace weft::testing
