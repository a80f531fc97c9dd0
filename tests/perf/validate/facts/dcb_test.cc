// The kernel's answer about DCB, built like in net/dcb/dcbnl.c, complete and truncated.
#include "perf/validate/facts/dcb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/dcbnl.h>

#include <cstring>
#include <vector>

namespace weft::fabric {
namespace {

using Bytes = std::vector<std::byte>;

Bytes attribute(int type, const Bytes& payload) {
  nlattr header{};
  header.nla_len = static_cast<std::uint16_t>(sizeof header + payload.size());
  header.nla_type = static_cast<std::uint16_t>(type);
  Bytes bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(NLA_ALIGN(bytes.size()));
  return bytes;
}

template <typename T>
Bytes bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes app(int selector, int priority, int protocol) {
  dcb_app entry{};
  entry.selector = static_cast<std::uint8_t>(selector);
  entry.priority = static_cast<std::uint8_t>(priority);
  entry.protocol = static_cast<std::uint16_t>(protocol);
  return attribute(DCB_ATTR_IEEE_APP, bytes_of(entry));
}

Bytes answer() {
  ieee_pfc pfc{};
  pfc.pfc_cap = 8;
  pfc.pfc_en = 1 << 3;
  constexpr int kTrustTable = 11;
  return joined({attribute(DCB_ATTR_IFNAME, {std::byte{'e'}, std::byte{0}}),
                 attribute(DCB_ATTR_IEEE | NLA_F_NESTED,
                           joined({attribute(DCB_ATTR_IEEE_ETS, bytes_of(ieee_ets{})),
                                   attribute(DCB_ATTR_IEEE_PFC, bytes_of(pfc)),
                                   attribute(DCB_ATTR_IEEE_APP_TABLE,
                                             joined({app(IEEE_8021QAZ_APP_SEL_ETHERTYPE, 3, 0x8915),
                                                     app(IEEE_8021QAZ_APP_SEL_DSCP, 3, 26),
                                                     app(IEEE_8021QAZ_APP_SEL_DSCP, 6, 48)})),
                                   attribute(kTrustTable | NLA_F_NESTED,
                                             joined({attribute(1, {std::byte{5}}),
                                                     attribute(2, {std::byte{255}})}))})),
                 attribute(DCB_ATTR_DCBX, {std::byte{9}})});
}

TEST(FabricDcb, TakesPfcTheMapAndTrust) {
  PortFacts port;
  take_dcb(answer(), port);
  EXPECT_EQ(port.pfc_priorities, 8);
  ASSERT_EQ(port.dscp_map.size(), 2u);
  EXPECT_EQ(port.dscp_map[0].dscp, 26);
  EXPECT_EQ(port.dscp_map[0].priority, 3);
  EXPECT_EQ(port.dscp_map[1].dscp, 48);
  EXPECT_EQ(port.qos_trust, "dscp");
}

TEST(FabricDcb, TakesNothingFromAnAnswerWithoutPfc) {
  PortFacts port;
  take_dcb({}, port);
  take_dcb(attribute(DCB_ATTR_IEEE, attribute(DCB_ATTR_IEEE_ETS, bytes_of(ieee_ets{}))), port);
  EXPECT_FALSE(port.pfc_priorities.has_value());
  EXPECT_FALSE(port.qos_trust.has_value());
}

// Sanitizers detect reads beyond the end.
TEST(FabricDcb, StandsAnswersThatAreCutOffOrLieAboutLengths) {
  const Bytes whole = answer();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    PortFacts port;
    take_dcb(part, port);
  }
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int value : {0, 1, 3, 5, 255}) {
      Bytes changed = whole;
      changed[at] = std::byte(value);
      PortFacts port;
      take_dcb(changed, port);
      EXPECT_LE(port.dscp_map.size(), whole.size());
    }
}

}  // namespace
}  // namespace weft::fabric
