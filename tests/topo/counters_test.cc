// Port counters from a made-up sysfs tree, which of them are evidence, and those of a TCP
// connection.
#include "topo/counters.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class Counters : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  CounterSnapshot read(const Nic& nic, int port = 0) const {
    return read_counters(nic, port, root_.path(), root_ / "proc");
  }
  static Nic rdma() {
    Nic nic;
    nic.name = "mlx5_1";
    nic.rdma = true;
    nic.netdev = "eth1";
    return nic;
  }
  const testing::TemporaryFolder root_;
};

TEST_F(Counters, OfAPortItsDeviceAndItsInterface) {
  write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write("class/infiniband/mlx5_1/ports/1/counters/port_xmit_data", "11");
  write("class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE");
  write("class/infiniband/mlx5_1/ports/2/counters/port_xmit_data", "1000");
  write("class/infiniband/mlx5_1/ports/2/hw_counters/out_of_seq_request", "7");
  write("class/infiniband/mlx5_1/ports/2/hw_counters/lifespan", "10");
  write("class/infiniband/mlx5_1/ports/2/hw_counters/odd", "n/a");
  write("class/infiniband/mlx5_1/hw_counters/device_wide", "3");
  write("class/net/eth1/statistics/rx_dropped", "5");
  EXPECT_THAT(read(rdma()),
              ElementsAre(Pair("device_wide", 3), Pair("net.rx_dropped", 5),
                          Pair("out_of_seq_request", 7), Pair("port_xmit_data", 1000)));
  EXPECT_THAT(read(rdma(), 1), ElementsAre(Pair("device_wide", 3), Pair("net.rx_dropped", 5),
                                           Pair("port_xmit_data", 11)));
}

TEST_F(Counters, OfAPlainInterfaceWithTheHostsTcp) {
  write("class/net/eth0/statistics/tx_bytes", "123");
  write("proc/net/snmp",
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 900 42 0");
  Nic nic;
  nic.name = nic.netdev = "eth0";
  EXPECT_THAT(read(nic), ElementsAre(Pair("net.tx_bytes", 123), Pair("tcp.retransmits", 42)));
}

TEST_F(Counters, OfWhatIsNotThereNone) { EXPECT_THAT(read(rdma()), IsEmpty()); }

TEST_F(Counters, ChangesByName) {
  const CounterSnapshot before = {{"gone", 1},
                                  {"out_of_seq_request", 1},
                                  {"same", 4},
                                  {"set_back_err", 100},
                                  {"port_xmit_data", 5}};
  const CounterSnapshot after = {{"new", 9},
                                 {"out_of_seq_request", 300},
                                 {"same", 4},
                                 {"set_back_err", 2},
                                 {"port_xmit_data", 505}};
  const auto deltas = difference(before, after);
  EXPECT_EQ(to_string(deltas), "out_of_seq_request +299, port_xmit_data +500, set_back_err +2");
  EXPECT_EQ(to_string(signs_of_trouble(deltas)), "out_of_seq_request +299, set_back_err +2");
  EXPECT_EQ(evidence(1, "2", {deltas[0]}), "rail 1 host 2: out_of_seq_request +299");
  EXPECT_EQ(evidence(1, "2", difference(before, before)), "");
  EXPECT_EQ(evidence(1, "2", difference({{"set_back_err", 5}}, {{"set_back_err", 0}})), "");
}

TEST(SignsOfTrouble, KnownNamesOfSeveralDrivers) {
  for (const char* bad : {"completer_retry_err",
                          "rcvd_seq_err",
                          "duplicate_request",
                          "rcvd_rnr_err",
                          "local_ack_timeout_err",
                          "packet_seq_err",
                          "out_of_buffer",
                          "np_cnp_sent",
                          "np_ecn_marked_roce_packets",
                          "port_xmit_discards",
                          "port_xmit_wait",
                          "symbol_error",
                          "link_downed",
                          "rx_icrc_encapsulated_err",
                          "roce_slow_restart_cnps",
                          "net.tx_dropped",
                          "net.rx_missed_errors",
                          "tcp.retransmits",
                          "rnr_nak_retry_err",
                          "roce_adp_retrans"}) {
    EXPECT_EQ(signs_of_trouble({{bad, 1}}).size(), 1U) << bad;
  }
  for (const char* fine :
       {"port_xmit_data", "port_rcv_packets", "unicast_xmit_packets", "rx_write_requests",
        "sent_pkts", "rcvd_pkts", "rx_read_requests", "net.tx_bytes", "net.multicast", "link_width",
        "roce_adp_retrans_to_success"}) {
    EXPECT_THAT(signs_of_trouble({{fine, 1}}), IsEmpty()) << fine;
  }
}

TEST(TcpCounters, OfOneConnection) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t bytes = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const CounterSnapshot counters = read_tcp_counters(client);
  EXPECT_EQ(counters.at("tcp.retransmits"), 0);
  EXPECT_GT(counters.at("tcp.rtt_us"), 0);
  close(client);
  close(listener);
  EXPECT_THAT(read_tcp_counters(-1), IsEmpty());
}

}  // namespace
}  // namespace weft
