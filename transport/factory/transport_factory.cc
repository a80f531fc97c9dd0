// Chooses a transport for the rails and makes it. This file contains the name and the requirements
// of each transport between hosts, and is independent of how they move bytes.
#include "transport/factory/transport_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <utility>

#include "transport/control/socket.h"
#include "transport/job/exchange.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace weft {
namespace {

constinit std::atomic<RailDecorator> rail_decorator{nullptr};

constexpr const char* kInstallVerbs =
    "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL, SUSE) there";
constexpr const char* kInstallUcx = "install libucx0 (Debian, Ubuntu) or ucx (RHEL, SUSE) there";

// Returns the first rank whose `text` is not empty; kNoRank: none.
Rank first_with(const Topology& topology, std::string Place::*text) {
  for (Rank r = 0; r < topology.nranks(); ++r)
    if (!(topology.place(r).*text).empty()) return r;
  return kNoRank;
}

// Returns whether every rank has rails, and all are verbs devices with (without) reliable
// connections.
bool all_rails_are_rdma(const Topology& topology, bool reliable) {
  for (Rank r = 0; r < topology.nranks(); ++r) {
    const auto& rails = topology.place(r).rails;
    const auto fits = [&](const Nic& nic) { return nic.rdma && nic.no_rc == !reliable; };
    if (rails.empty() || !std::ranges::all_of(rails, fits)) return false;
  }
  return true;
}

}  // namespace

void note_libraries(Place& place, const std::string& asked) {
  const auto some = [&](bool no_rc) {
    return std::ranges::any_of(place.rails,
                               [&](const Nic& nic) { return nic.rdma && nic.no_rc == no_rc; });
  };
  if (some(false) || asked == "verbs") place.no_verbs = why_no_verbs();
  // Only if it is used: UCX installs signal handlers when it is loaded.
  if (some(true) || asked == "ucx") place.no_ucx = why_no_ucx();
}

std::string transport_between_hosts(const Topology& topology) {
  if (first_with(topology, &Place::no_rdma) != kNoRank) return "tcp";
  if (all_rails_are_rdma(topology, true))
    return first_with(topology, &Place::no_verbs) == kNoRank ? "verbs" : "tcp";
  if (all_rails_are_rdma(topology, false))
    return first_with(topology, &Place::no_ucx) == kNoRank ? "ucx" : "tcp";
  return "tcp";
}

std::string why_no_rdma(const Topology& topology) {
  const auto why = [&](std::string Place::*text, const std::string& remedy) {
    const Rank r = first_with(topology, text);
    if (r == kNoRank) return std::string();
    return fmt::format("{}: {}; tcp is used between hosts. {}, or say --transport tcp",
                       rank_on_host(topology, r), topology.place(r).*text, remedy);
  };
  if (const std::string closed =
          why(&Place::no_rdma,
              "Give the container its devices (--device=/dev/infiniband, or the RDMA device "
              "plugin)");
      !closed.empty())
    return closed;
  const auto sentence = [](std::string text) {
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    return text;
  };
  if (all_rails_are_rdma(topology, true)) return why(&Place::no_verbs, sentence(kInstallVerbs));
  if (all_rails_are_rdma(topology, false)) return why(&Place::no_ucx, sentence(kInstallUcx));
  return "";
}

void check_libraries(const Topology& topology, const std::string& asked) {
  const auto check = [&](const char* name, std::string Place::*missing, const char* remedy) {
    const Rank r = first_with(topology, missing);
    if (asked == name && r != kNoRank)
      throw Error(fmt::format("transport {}: {}: {}; {}, or use --transport auto", name,
                              rank_on_host(topology, r), topology.place(r).*missing, remedy));
  };
  check("verbs", &Place::no_verbs, kInstallVerbs);
  check("ucx", &Place::no_ucx, kInstallUcx);
}

std::unique_ptr<Transport> make_rail_transport(const std::string& name, Job& job,
                                               const Topology& topology, const Nic& rail,
                                               bool replaceable) {
  if (name == "verbs") return make_verbs_transport(job, topology, rail, replaceable);
  // Allow one socket per peer and rail. Fewer may do, since not all pairs communicate.
  (void)allow_files(job.size() * topology.nrails());
  if (name == "ucx") return make_ucx_transport(job, topology, rail);
  return make_tcp_transport(job, topology, rail);
}

void set_rail_decorator(RailDecorator decorator) noexcept { rail_decorator.store(decorator); }

std::unique_ptr<Transport> decorate_rail(const std::string& name, std::unique_ptr<Transport> rail) {
  const RailDecorator decorate = rail_decorator.load();
  return decorate ? decorate(name, std::move(rail)) : std::move(rail);
}

}  // namespace weft
