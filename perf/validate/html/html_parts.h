// Parts of the page of --html. Each returns markup that needs nothing from outside the page; text
// from hosts passes escaped().
//
// Pictures carry their numbers in data attributes, in the units that the attributes name, with the
// digits of --json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/validate/report/faults.h"
#include "perf/validate/report/port_numbers.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

// What several pictures of one page show. Valid as long as the report.
struct Page {
  explicit Page(const Report& of);

  const Report& report;
  std::vector<Fault> faults;
  std::vector<PortNumbers> ports;
  std::vector<PathNumbers> paths;
  std::map<int, double> usual_gbps;  // by rail: median over the rail's paths

  // What a port is compared with: its expected rate, else the median of its rail; 0: neither.
  double reference_gbps(Port port) const;
  double reference_gbps(const PathNumbers& path) const;
  // Numbers from 1 of the faults that name this port, or its host or rail as a whole.
  std::vector<int> faults_of_port(int host, int rail) const;
  std::vector<int> faults_of_host(int host) const;  // and any of its ports and paths
  std::vector<int> faults_of_rail(int rail) const;  // the rail or its switch
  // At most `most` hosts, in order: those that faults name, then the first ones.
  std::vector<int> shown_hosts(std::size_t most) const;
  std::string host_name(int host) const;
};

std::string escaped(std::string_view text);  // printable, for markup and for attributes
// ` data-gbps="392"`; "" where there is no value.
std::string data(std::string_view name, std::optional<double> value);
std::string data(std::string_view name, std::string_view text);
// "?1" with a class of its own: the number of a fault in a picture, as SVG.
std::string badge(double x, double y, int fault);

// The class of a colour for a rate: "r5" (healthy) to "r1", "r0" (nothing arrived), "rn" (not known).
std::string rate_class(std::optional<double> gbps, double reference_gbps,
                       const Thresholds& thresholds);
// A line of colours and their shares; `lines`: of lines, else of cells.
std::string rate_legend(const Thresholds& thresholds, bool lines);

std::string html_style();
std::string html_summary(const Page& page);   // banner, faults
std::string html_topology(const Page& page);  // hosts, ports, rails, with the culprits marked
std::string html_heatmaps(const Page& page);  // host x host, one per rail
std::string html_latency(const Page& page);
std::string html_ports(const Page& page);
std::string html_counters(const Page& page);
std::string html_coverage(const Page& page);  // checks, limits, collectives, drift

}  // namespace weft::fabric
