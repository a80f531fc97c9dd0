// The page of --html: its numbers are those of the report, whatever hosts call themselves; a
// browser without a network shows them, in light and in dark.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "perf/validate/report/port_numbers.h"
#include "support/process/shell.h"
#include "tests/perf/validate/report/random_report.h"
#include "tests/support/process/temporary_folder.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Attributes = std::map<std::string, std::string>;

// The data attributes of all elements whose start tag begins so.
std::vector<Attributes> elements(const std::string& page, const std::string& start) {
  std::vector<Attributes> found;
  const std::regex attribute("data-([a-z0-9-]+)=\"([^\"]*)\"");
  for (std::size_t at = page.find(start); at != page.npos; at = page.find(start, at + 1)) {
    const std::string tag = page.substr(at, page.find('>', at) - at);
    Attributes& all = found.emplace_back();
    for (std::sregex_iterator i(tag.begin(), tag.end(), attribute), end; i != end; ++i)
      all[(*i)[1]] = (*i)[2];
  }
  return found;
}

// What the heatmaps and the latencies of a page show, against the numbers of the report.
void expect_numbers_of(const Report& report, const std::string& page) {
  std::map<std::string, double> shown;
  for (const Attributes& cell : elements(page, "<rect class=\"cell "))
    if (cell.contains("gbps"))
      shown[cell.at("from") + " " + cell.at("to") + " " + cell.at("rail")] =
          std::stod(cell.at("gbps"));
  const std::vector<PathNumbers> paths = path_numbers(report);
  EXPECT_EQ(shown.size(), paths.size());
  for (const PathNumbers& path : paths) {
    const auto name = [&](Port p) { return report.hosts[static_cast<std::size_t>(p.host)].name; };
    const std::string key =
        name(path.from) + " " + name(path.to) + " " + std::to_string(path.from.rail);
    EXPECT_EQ(shown[key], path.reached ? *path.gbps : 0) << key;
  }
  const std::vector<Attributes> latencies = elements(page, "<g class=\"latency\"");
  const std::vector<PortNumbers> ports = port_numbers(report);
  ASSERT_EQ(latencies.size(), ports.size());
  for (std::size_t i = 0; i < ports.size(); ++i) {
    EXPECT_EQ(latencies[i].at("host"), ports[i].host);
    EXPECT_EQ(std::stod(latencies[i].at("p99-us")), *ports[i].p99_us);
  }
}

TEST(ReportHtml, ShowsTheNumbersAndMarksTheCulprit) {
  const Report report = slow_port_report();
  const std::string page = to_html(report);
  expect_numbers_of(report, page);
  const std::vector<Attributes> bodies = elements(page, "<body");
  ASSERT_EQ(bodies.size(), 1U);
  EXPECT_EQ(bodies[0].at("exit-code"), "2");
  // h3 rail 1 sends too slowly: marked among the senders, and only there.
  std::size_t badges = 0;
  for (const Attributes& badge : elements(page, "<g class=\"badge\""))
    badges += badge.at("fault") == "1";
  EXPECT_GE(badges, 2U);
  std::size_t accused = 0;
  for (std::size_t at = 0; (at = page.find("accused\"", at)) != page.npos; ++at) ++accused;
  EXPECT_GE(accused, 1U);
  EXPECT_THAT(to_html(healthy_report()), Not(HasSubstr("accused\"")));
  EXPECT_TRUE(elements(to_html(healthy_report()), "<g class=\"badge\"").empty());
}

// Start tags and end tags pair up, nothing is fetched, and no text of a host becomes markup.
TEST(ReportHtml, WhateverIsFoundIsAWholePage) {
  const std::regex tag("<(/?)([a-z][a-z0-9]*)((?:[^<>\"]|\"[^\"]*\")*?)(/?)>");
  const std::set<std::string> empty = {"meta", "br", "hr", "img"};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::string page = to_html(RandomReport(seed).draw());
    for (const char* const never : {"<script", "src=", "url(", "href=\"http", "@import"})
      ASSERT_THAT(page, Not(HasSubstr(never))) << seed;
    const std::size_t style = page.find("</style>");
    std::vector<std::string> open;
    for (std::sregex_iterator
             i(page.begin() + static_cast<std::ptrdiff_t>(style) + 8, page.end(), tag),
         end;
         i != end; ++i) {
      const std::string name = (*i)[2];
      if (empty.contains(name) || (*i)[4] == "/") continue;
      if ((*i)[1].length() == 0) {
        open.push_back(name);
      } else {
        const bool opened =
            name == "head" || name == "html" || (!open.empty() && open.back() == name);
        ASSERT_TRUE(opened) << seed << ": </" << name << ">";
        if (!open.empty() && open.back() == name) open.pop_back();
      }
    }
    EXPECT_TRUE(open.empty()) << seed << ": <" << open.back() << ">";
  }
}

std::string browser() {
  for (const char* const name : {"chromium", "chromium-browser", "google-chrome"}) {
    const Output found = run(std::string("command -v ") + name);
    if (found.exit_code == 0) return found.text.substr(0, found.text.find('\n'));
  }
  return "";
}

// Runs the browser without a network and a display. Returns what it prints.
Output browse(const std::string& flags, const std::string& folder) {
  return run("timeout -k 5 100 " + browser() +
             " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
             " --user-data-dir=" +
             folder + "/profile --host-resolver-rules='MAP * ~NOTFOUND' " + flags + " file://" +
             folder + "/page.html");
}

// The browser's own document, after it has parsed the page, has the numbers of the report; its
// pictures in light and in dark are not the same, and neither is empty.
TEST(ReportHtml, ABrowserShowsTheNumbers) {
  if (browser().empty()) GTEST_SKIP() << "missing capability: chromium";
  testing::TemporaryFolder folder;
  const Report report = slow_port_report();
  std::ofstream(folder / "page.html") << to_html(report);
  const Output dom = browse("--dump-dom 2>/dev/null", folder.path());
  ASSERT_EQ(dom.exit_code, 0) << dom.text;
  ASSERT_THAT(dom.text, HasSubstr("</html>"));
  expect_numbers_of(report, dom.text);
  const auto picture = [&](const std::string& scheme) {
    const std::string file = folder / (scheme + ".png");
    const Output shot =
        browse("--window-size=1000,1400 --screenshot=" + file +
                   " --blink-settings=preferredColorScheme=" + (scheme == "dark" ? "0" : "1"),
               folder.path());
    EXPECT_EQ(shot.exit_code, 0) << shot.text;
    std::ifstream in(file, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
  };
  const std::string light = picture("light"), dark = picture("dark");
  EXPECT_THAT(light, StartsWith("\x89PNG"));
  EXPECT_GT(light.size(), 20000U);  // a page without content takes about 5,000 bytes
  EXPECT_GT(dark.size(), 20000U);
  EXPECT_NE(light, dark);
}

}  // namespace
}  // namespace weft::fabric
