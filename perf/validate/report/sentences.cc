// A sentence for each check of the registry: the problem at a place, with its numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// "187 of 392 Gb/s", "38 us, 4.1 us expected", "22.36, 28.39 expected"; "" if a finding has no
// numbers.
std::string against(const Finding& f) {
  switch (f.unit) {
    case Unit::kText: {
      const std::string text = printable(f.text), wanted = printable(f.expected_text);
      return text.empty() && wanted.empty() ? ""
             : wanted.empty()               ? text
             : text.empty()                 ? fmt::format("nothing, {} expected", wanted)
                                            : fmt::format("{}, {} expected", text, wanted);
    }
    case Unit::kNone:
      if (f.value == f.expected) return "";
      break;
    case Unit::kGbps:
      if (f.expected > 0 && std::isfinite(f.expected))
        return fmt::format("{} of {} Gb/s", three_digits(f.value), three_digits(f.expected));
      return in_unit(f.value, f.unit);
    case Unit::kPerPacket:
      return fmt::format("{}, {} expected", in_unit(f.value, f.unit), small_share(f.expected));
    default:
      break;
  }
  return fmt::format("{}, {} expected", in_unit(f.value, f.unit), in_unit(f.expected, f.unit));
}

std::string_view sends(Direction direction) {
  return direction == Direction::kTransmit  ? "sends"
         : direction == Direction::kReceive ? "receives"
                                            : "sends and receives";
}

// Returns hosts with ports behind a switch: " (h2, h3)".
std::string hosts_in_evidence(const Finding& f) {
  constexpr std::size_t kMost = 4;
  std::string hosts;
  std::size_t count = 0;
  for (const Evidence& e : f.evidence) {
    if (e.name != "port" || e.host.empty()) continue;
    if (++count <= kMost) hosts += (hosts.empty() ? "" : ", ") + printable(e.host);
  }
  if (count > kMost) hosts += fmt::format(" and {} more", count - kMost);
  return hosts.empty() ? "" : fmt::format(" ({})", hosts);
}

// Returns the value of the evidence with this name; 0 if there is none.
double number_in_evidence(const Finding& f, std::string_view name) {
  const auto found = std::ranges::find(f.evidence, name, &Evidence::name);
  return found == f.evidence.end() ? 0 : found->value;
}

// "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s".
std::string rate_sentence(const Finding& f) {
  const std::string place = in_words(f.where), numbers = against(f);
  switch (f.where.kind) {
    case PlaceKind::kPath:
      return fmt::format("{} passes {}", place, numbers);
    case PlaceKind::kRail:
    case PlaceKind::kSwitch:
      return fmt::format("{}{} carries {} a port", place, hosts_in_evidence(f), numbers);
    case PlaceKind::kFleet:
      if (const double one = number_in_evidence(f, "one_stream"); one > 0)
        return fmt::format("a stream reaches {}, and {:.0f} of them do not fill a port: {}",
                           in_unit(one, Unit::kGbps), number_in_evidence(f, "streams"), numbers);
      return fmt::format("every port runs at {}", numbers);
    default:
      return fmt::format("{} {} at {}", place, sends(f.where.direction), numbers);
  }
}

// "h3 rail 1 (mlx5_1) loses 1.2e-4 of the packets that the port sends".
std::string loss_sentence(const Finding& f) {
  const bool port = f.where.kind == PlaceKind::kPort, host = f.where.kind == PlaceKind::kHost;
  std::string text = fmt::format("{}{} loses {} of the packets", in_words(f.where),
                                 f.where.kind == PlaceKind::kSwitch ? hosts_in_evidence(f) : "",
                                 small_share(f.value));
  const bool of_flows = number_in_evidence(f, "flow_label") > 0;
  if (of_flows) text += " of some flows";
  if (port || host)
    text += fmt::format(" that the {} {}", port ? "port" : "host", sends(f.where.direction));
  return of_flows ? text + ", always the same ones" : text;
}

std::string congestion_sentence(const Finding& f) { return loss_sentence(f) + ", under load only"; }

std::string unreachable_sentence(const Finding& f) {
  const std::string place = in_words(f.where);
  const bool port = f.where.kind == PlaceKind::kPort || f.where.kind == PlaceKind::kHost;
  const std::string error = printable(f.text);
  const std::string what = f.where.direction == Direction::kTransmit  ? "sent by " + place
                           : f.where.direction == Direction::kReceive ? "sent to " + place
                                                                      : "sent by or to " + place;
  if (port && f.severity == Severity::kFail)  // intermittently
    return fmt::format("some of what is {} is lost{}{}", what, error.empty() ? "" : ": ", error);
  if (port) return fmt::format("nothing {} arrives", what);
  return fmt::format("{}: nothing arrives{}{}", place, error.empty() ? "" : ": ", error);
}

// Returns the place of the evidence with this name, in words; "" if there is none.
std::string place_in_evidence(const Finding& f, std::string_view name) {
  for (const Evidence& e : f.evidence)
    if (e.name == name)
      return in_words(Where{PlaceKind::kPort, e.host, e.rail, Direction::kBoth, "", e.text});
  return "";
}

// Returns the texts of all evidence with this name, separated by commas.
std::string text_in_evidence(const Finding& f, std::string_view name) {
  std::string all;
  for (const Evidence& e : f.evidence)
    if (e.name == name) all += (all.empty() ? "" : ", ") + printable(e.text);
  return all;
}

std::string swapped_sentence(const Finding& f) {
  if (const std::string with = place_in_evidence(f, "swapped_with"); !with.empty())
    return fmt::format("cables swapped: {} and {}", in_words(f.where), with);
  const std::string at = place_in_evidence(f, "arrived_at");
  return fmt::format("{}: packets arrive at {}", in_words(f.where),
                     at.empty() ? "another port" : at);
}

std::string collective_sentence(const Finding& f) {
  if (f.unknown) return "no case was run of " + text_in_evidence(f, "left_out");
  std::string what = text_in_evidence(f, "collective");
  if (what.empty()) what = "a collective";
  if (const std::string algorithm = text_in_evidence(f, "algorithm"); !algorithm.empty())
    what += fmt::format(" ({})", algorithm);
  const std::string first = printable(f.text);
  const std::string place =
      f.where.host.empty()
          ? ""
          : fmt::format("data that {} {} change; ", in_words(f.where), sends(f.where.direction));
  // Do not cast: a report file may have any number.
  return fmt::format("{}{}: wrong result in {} case{}{}{}", place, what,
                     in_unit(f.value, Unit::kCount), f.value == 1 ? "" : "s",
                     first.empty() ? "" : ": ", first);
}

// "h3 rail 1 sends at 80 of 400 Gb/s for 33 % of the time (1 s of every 3 s)".
std::string unstable_sentence(const Finding& f) {
  std::string text = rate_sentence(f);
  if (const double flows = number_in_evidence(f, "share_of_flows"); flows > 0)
    return text + fmt::format(" for {} of the flows, always the same ones", percent(flows));
  const double share = number_in_evidence(f, "share_of_time");
  text += share > 0 ? fmt::format(" for {} of the time", percent(share)) : " at times";
  const double spell = number_in_evidence(f, "spell"), period = number_in_evidence(f, "period");
  if (spell > 0 && period > 0)
    text += fmt::format(" (about {} of every {})", in_unit(spell, Unit::kMicroseconds),
                        in_unit(period, Unit::kMicroseconds));
  return text;
}

std::string busbw_sentence(const Finding& f) {
  const std::string what = text_in_evidence(f, "collective");
  const std::string limit = text_in_evidence(f, "limiting_link");
  return fmt::format("{} reaches {} of busbw{}{}", what.empty() ? "a collective" : what, against(f),
                     limit.empty() ? "" : ", limited by ", limit);
}

std::string job_failed_sentence(const Finding& f) {
  return fmt::format("the job failed: {}", printable(f.text));
}

std::string starved_sentence(const Finding& f) {
  if (number_in_evidence(f, "stops") > 0)
    return fmt::format("{} was stopped for {} of the time", in_words(f.where), percent(f.value));
  return fmt::format("{} waits for a core {} of the time, at most {} expected", in_words(f.where),
                     percent(f.value), percent(f.expected));
}

std::string width_sentence(const Finding& f) {
  return f.unit == Unit::kGbps
             ? fmt::format("{}: link at {}, less than like ports", in_words(f.where), against(f))
             : fmt::format("{}: lanes of the link: {}", in_words(f.where), against(f));
}

std::string left_out_sentence(const Finding& f) {
  return "no time for " + text_in_evidence(f, "probe");
}

std::string declared_sentence(const Finding& f) {
  return "declared and not checked: " + printable(f.text);
}

std::string nothing_sentence(const Finding&) { return "no rate between hosts was measured"; }

std::string not_measured_sentence(const Finding& f) {
  return fmt::format("{}: what the port {} was not measured", in_words(f.where),
                     sends(f.where.direction));
}

std::string noise_sentence(const Finding& f) {
  return fmt::format("rate noise is too high: a port could be {} too slow unseen, {} allowed",
                     f.value < 1 ? in_unit(f.value, f.unit) : "far", in_unit(f.expected, f.unit));
}

// In place of `words`: `make` also has a sentence for unknown findings.
constexpr std::string_view kAlsoUnknown = "unknown";

struct Sentence {
  std::string_view id;
  std::string (*make)(const Finding&);  // nullptr: use `words`
  // {numbers} compares value and expectation; {value} and {expected} include their unit, {number}
  // and {limit} do not.
  std::string_view words;
};

constexpr Sentence kSentences[] = {
    {"link-state", nullptr, "{place}: the link is {numbers}"},
    {"link-rate", nullptr, "{place}: the link is trained at {numbers}"},
    {"link-width", width_sentence, ""},
    {"link-flaps", nullptr, "{place}: the link went down: {numbers}"},
    {"bit-errors", nullptr, "{place}: uncorrected bit errors: {numbers}"},
    {"corrected-bits", nullptr, "{place}: {value} the fleet's corrected bit errors"},
    {"crc-errors", nullptr, "{place}: packets with a wrong checksum: {numbers}"},
    {"icrc-errors", nullptr, "{place}: packets damaged behind the link: {numbers}"},
    {"pfc-config", nullptr, "{place}: flow control {numbers}"},
    {"pause", nullptr, "{place}{direction}: PFC pause {value} of the time, limit {expected}"},
    {"xmit-wait", nullptr, "{place}: waits to send for {value} of the time, limit {expected}"},
    {"pause-storm", nullptr, "{place}: pause storm: {numbers}"},
    {"class-leak", nullptr,
     "{place}{direction}: {value} of the RDMA bytes are outside their class"},
    {"ecn-marking", nullptr, "{place}: congested, and no packet was marked (ECN)"},
    {"cnp-sent", nullptr, "{place}: marked packets arrived, but no notification (CNP) was sent"},
    {"cnp-handled", nullptr, "{place}: notifications (CNP) handled: {numbers}"},
    {"cnp-ignored", nullptr, "{place}: notifications (CNP) ignored: {numbers}"},
    {"dcqcn-config", nullptr, "{place}: DCQCN {numbers}"},
    {"discards", nullptr, "{place}{direction}: packets dropped: {numbers}"},
    {"retransmits", nullptr, "{place}{direction}: packets sent again: {numbers}"},
    {"out-of-sequence", nullptr, "{place}{direction}: packets out of order: {numbers}"},
    {"timeouts", nullptr, "{place}{direction}: acknowledgements timed out: {numbers}"},
    {"rnr", nullptr, "{place}{direction}: receiver not ready: {numbers}"},
    {"ib-subnet", nullptr, "{place}: subnet: {numbers}"},
    {"mtu", nullptr, "{place}: MTU {numbers}"},
    {"gid", nullptr, "{place}: GID {numbers}"},
    {"duplicate-address", nullptr, "{place}: another port has the same {text}"},
    {"rail-map", nullptr, "{place}: slot {numbers}"},
    {"pcie-link", nullptr, "{place}: PCIe link {numbers}"},
    {"pcie-errors", nullptr, "{place}: PCIe errors: {numbers}"},
    {"pcie-stalls", nullptr, "{place}: PCIe stalls: {numbers}"},
    {"firmware", nullptr, "{place}: firmware {numbers}"},
    {"fec", nullptr, "{place}: error correction (FEC) {numbers}"},
    {"module", nullptr, "{place}: transceiver: {numbers}"},
    {"nic-temperature", nullptr, "{place}: temperature: {numbers}"},
    {"nic-health", nullptr, "{place}: health of the NIC: {numbers}"},
    {"pcie-settings", nullptr, "{place}: PCIe is set to {numbers}"},
    {"rail-switch", nullptr, "{place}: plugged into {numbers}"},
    {"gpu-errors", nullptr, "{place}: errors of GPUs: {numbers}"},
    {"nvlink", nullptr, "{place}: NVLinks: {numbers}"},
    {"gpu-slowdown", nullptr, "{place}: GPUs slowed down: {numbers}"},
    {"numa", nullptr, "{place}: the tester runs on cores {numbers}"},
    {"host-setup", nullptr, "{place}: set-up of the host: {numbers}"},
    {"gpudirect", nullptr, "{place}: NICs do not reach GPU memory: {numbers}"},
    {"declared", declared_sentence, kAlsoUnknown},
    {"tester-starved", starved_sentence, ""},
    {"job-failed", job_failed_sentence, kAlsoUnknown},
    {"not-run", nullptr, "the run did not take place: {text}"},
    {"rank-lost", nullptr, "{place} is lost: {text}"},
    {"deadline-passed", nullptr, "the deadline of a wait passed: {text}"},
    {"rail-out", nullptr, "{place} failed, and other rails carried its messages"},
    {"no-failover", nullptr, "{place}: messages pass, and datagrams (UDP) do not"},
    {"port-missing", nullptr, "{place} is not a rail of this host: {text}"},
    {"no-address", nullptr, "{place} has no IP address, as the other hosts have"},
    {"rails-differ", nullptr, "{place}: rails: {numbers}"},
    {"rails-one-subnet", nullptr, "{place}: rails share the subnet {text}"},
    {"nothing-measured", nothing_sentence, kAlsoUnknown},
    {"probe-left-out", left_out_sentence, kAlsoUnknown},
    {"port-not-measured", not_measured_sentence, kAlsoUnknown},
    {"collective-wrong", collective_sentence, kAlsoUnknown},
    {"busbw", busbw_sentence, ""},
    {"false-report", nullptr, "{place} sends impossible reports: {numbers}"},
    {"unreachable", unreachable_sentence, ""},
    {"cables-swapped", swapped_sentence, ""},
    {"path-mtu", nullptr,
     "{place}: packets of {expected} do not pass, the largest that pass have {value}"},
    {"latency", nullptr, "{place} takes {value} a message, {expected} expected"},
    {"latency-tail", nullptr,
     "{place} stalls: p99 latency is {value} the median, {expected} at the other hosts"},
    {"port-rate", rate_sentence, ""},
    {"host-rate", rate_sentence, ""},
    {"path-rate", rate_sentence, ""},
    {"rail-rate", rate_sentence, ""},
    {"switch-rate", rate_sentence, ""},
    {"fleet-rate", rate_sentence, ""},
    {"rate-noise", noise_sentence, kAlsoUnknown},
    {"unstable-rate", unstable_sentence, ""},
    {"loss", loss_sentence, ""},
    {"congestion-loss", congestion_sentence, ""},
    {"incast", nullptr, "{place}: many senders at once reach {numbers}"},
    {"victim-flow", nullptr,
     "{place}: load elsewhere makes p99 latency {value} as long, at most {expected} expected"},
    {"bisection", nullptr, "{place}: halves exchange {numbers} in all"},
    {"all-to-all", nullptr, "{place}: everyone to everyone reaches {numbers} in all"},
    {"cross-rail", nullptr, "{place}: traffic to another rail reaches {numbers}"},
    {"loopback", nullptr, "{place}: traffic to the host's own ports reaches {numbers}"},
    {"ecmp-entropy", nullptr, "{place}: some ECMP paths reach only {numbers}"},
    {"flows-meet", nullptr, "{place}: {value} of the flows meet others on the same uplink"},
    {"drift", nullptr, "{place}{direction}: {value}, and {expected} in the baseline"},
};

const Sentence* sentence_for(std::string_view id) {
  const auto* row = std::find_if(std::begin(kSentences), std::end(kSentences),
                                 [&](const Sentence& s) { return s.id == id; });
  return row == std::end(kSentences) ? nullptr : row;
}

std::string by_words(const Finding& f, std::string_view words) {
  const std::string_view direction = f.where.direction == Direction::kTransmit  ? ", sending"
                                     : f.where.direction == Direction::kReceive ? ", receiving"
                                                                                : "";
  std::string numbers = against(f);
  if (numbers.empty()) numbers = "not alike";  // a group without a majority
  return fmt::format(
      fmt::runtime(words), fmt::arg("place", in_words(f.where)), fmt::arg("direction", direction),
      fmt::arg("numbers", numbers), fmt::arg("value", in_unit(f.value, f.unit)),
      fmt::arg("expected", in_unit(f.expected, f.unit)), fmt::arg("number", three_digits(f.value)),
      fmt::arg("limit", three_digits(f.expected)), fmt::arg("text", printable(f.text)));
}

}  // namespace

bool has_sentence(std::string_view id) { return sentence_for(id) != nullptr; }

std::string in_words(const Finding& f) {
  const Sentence* sentence = sentence_for(f.id);
  if (sentence && sentence->make && (!f.unknown || sentence->words == kAlsoUnknown))
    return sentence->make(f);
  if (f.unknown) {
    const std::string why = printable(f.text);
    return fmt::format("{}: not known: {}{}{}", in_words(f.where), title_of(f.id),
                       why.empty() ? "" : ": ", why);
  }
  if (sentence) return by_words(f, sentence->words);
  const std::string numbers = against(f);
  return fmt::format("{}: {}{}{}", in_words(f.where), title_of(f.id), numbers.empty() ? "" : ": ",
                     numbers);
}

}  // namespace weft::fabric
