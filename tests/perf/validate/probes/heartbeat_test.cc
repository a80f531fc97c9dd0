// A process detects that it was stopped, and does not count waits for a core as stops.
#include "perf/validate/probes/heartbeat.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace weft::fabric {
namespace {

using namespace std::chrono_literals;

TEST(Heartbeat, SeesThatTheProcessWasStopped) {
  int ready[2], done[2], answer[2];
  ASSERT_EQ(pipe(ready) | pipe(done) | pipe(answer), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Heartbeat heartbeat;
    char byte = 0;
    bool fine = write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1;
    std::this_thread::sleep_for(50ms);  // a beat after the last stop
    const Stops stops = heartbeat.stops();
    fine = fine && write(answer[1], &stops, sizeof stops) == sizeof stops;
    _exit(fine ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(30ms);
    kill(child, SIGSTOP);
    std::this_thread::sleep_for(100ms);
    kill(child, SIGCONT);
  }
  ASSERT_EQ(write(done[1], &byte, 1), 1);
  Stops stops;
  ASSERT_EQ(read(answer[0], &stops, sizeof stops), static_cast<ssize_t>(sizeof stops));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GE(stops.count, 1);
  EXPECT_GT(stops.stopped_s, 0);
  EXPECT_GT(stops.longest_s, 0);
  EXPECT_GT(stops.watched_s, stops.stopped_s);
  for (const int fd : {ready[0], ready[1], done[0], done[1], answer[0], answer[1]}) close(fd);
}

TEST(Heartbeat, WaitsForACoreAreNoStops) {
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  // A pause of the whole machine (a guest whose host is busy) also counts, so one try of ten
  // without any is enough.
  Stops stops;
  for (int tries = 0; tries < 10; ++tries) {
    const Heartbeat heartbeat;
    std::this_thread::sleep_for(500ms);
    stops = heartbeat.stops();
    if (stops.stopped_s < 0.5 * stops.watched_s) break;
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_LT(stops.stopped_s, 0.5 * stops.watched_s);
}

}  // namespace
}  // namespace weft::fabric
