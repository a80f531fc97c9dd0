// A lab of three hosts for tests of netlab's faults, and datagrams between its hosts.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace weft::testing {

inline const std::string kNetlab = WEFT_SOURCE_DIR "/tests/lab/netlab";

// One lab of three hosts for all tests; each test heals it.
class NetlabFaults : public LabTest {
 protected:
  void SetUp() override {
    LabTest::SetUp();
    if (!IsSkipped()) lab_ = lab(3, 2);
  }
  void TearDown() override {
    if (broken_ || HasFailure()) lab_to_break(3, 2);
    LabTest::TearDown();
  }

  Output fault(const std::string& words) {
    broken_ = true;
    return netlab("fault", lab_, words);
  }
  void inject(const std::string& words) {
    const Output output = fault(words);
    ASSERT_EQ(output.exit_code, 0) << words << ": " << output.text;
  }
  void heal() {
    const Output output = netlab("heal", lab_);
    ASSERT_EQ(output.exit_code, 0) << output.text;
    broken_ = false;
  }
  std::string in(const std::string& host, const std::string& command) const {
    return run(fmt::format("{} exec --lab {} {} {}", kNetlab, lab_, host, command)).text;
  }
  std::string at_the_switch(const std::string& command) const {
    return run(fmt::format("ip netns exec weft-{}-sw {}", lab_, command)).text;
  }
  // The two shapers of a port with their rates, as printed by tc.
  std::string sends(int host, int rail) const {
    return in(fmt::format("h{}", host), fmt::format("tc qdisc show dev rail{} root", rail));
  }
  std::string receives(int host, int rail) const {
    return at_the_switch(fmt::format("tc qdisc show dev h{}-r{} root", host, rail));
  }
  // The number of datagrams, of `count`, that arrive at another host, sent flow by flow.
  int arrived(int from, int to, int rail, int count, int bytes = 100, int flows = 1) const {
    const std::string host = fmt::format("h{}", to);
    const int before = datagrams_of(host);
    EXPECT_EQ(as_host(from, fmt::format("--datagrams 10.{}.0.{} {} {} {}", rail, to, count, bytes,
                                        flows)),
              "");
    return datagrams_of(host) - before;
  }
  // The number of datagrams that each flow to each address sends in the same seconds.
  std::vector<double> sent(int from, const std::string& addresses, int flows) const {
    std::istringstream counts(as_host(from, fmt::format("--seconds {} 5 {}", addresses, flows)));
    return {std::istream_iterator<double>(counts), {}};
  }
  // The output of this program run in a host.
  std::string as_host(int host, const std::string& arguments) const {
    return in(fmt::format("h{}", host),
              std::filesystem::read_symlink("/proc/self/exe").string() + " " + arguments);
  }
  // Counts datagrams received, also for ports without a socket.
  int datagrams_of(const std::string& host) const {
    return std::atoi(in(host, "awk '/^Udp: [0-9]/ { print $2 + $3 }' /proc/net/snmp").c_str());
  }

  // The lab's processes that switch intermittent faults on and off.
  std::string at_work() const {
    return run(fmt::format("pgrep -f '[c]ome_and_go.*weft-{}-'", lab_)).text;
  }

  std::string lab_;

 private:
  bool broken_ = false;
};

// The program's commands in a host: `--datagrams ADDRESS COUNT BYTES FLOWS`, or `--seconds
// ADDRESS,... SECONDS FLOWS`, which prints how many each flow has sent. Returns the exit code.
int send_as_a_host(const std::vector<std::string>& words);

}  // namespace weft::testing
