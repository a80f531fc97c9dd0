// The page of --html has the numbers of the report, whatever the host names; a browser without a
// network shows them, in light and in dark mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
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

// The data attributes of all elements whose start tag begins with `start`.
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

// Compares the tables of a page with the numbers of the report.
void expect_numbers_of(const Report& report, const std::string& page) {
  std::map<std::string, double> shown;
  for (const Attributes& cell : elements(page, "<td"))
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
  std::map<std::string, double> p99;
  for (const Attributes& row : elements(page, "<tr"))
    if (row.contains("p99")) p99[row.at("host") + " " + row.at("rail")] = std::stod(row.at("p99"));
  for (const PortNumbers& port : port_numbers(report))
    EXPECT_EQ(p99.at(port.host + " " + std::to_string(port.port.rail)), *port.p99_us);
}

// The document within the page.
std::string data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"report\">\n";
  const std::size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

// The page contains the document of --json, and no text of a host becomes markup or is fetched.
TEST(ReportHtml, HasTheDocumentWhateverIsFound) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Report report = RandomReport(seed).draw();
    const std::string page = to_html(report), data = data_of(page);
    ASSERT_EQ(nlohmann::ordered_json::parse(data), nlohmann::ordered_json::parse(json_text(report)))
        << seed;
    ASSERT_THAT(data, Not(HasSubstr("<"))) << seed;
    std::string rest = page;
    rest.erase(rest.find(data), data.size());
    for (const char* const never : {"src=", "url(", "href=", "@import", "fetch(", "innerHTML"})
      ASSERT_THAT(rest, Not(HasSubstr(never))) << seed;
  }
}

TEST(ReportHtml, NobodyIsToldOfMoney) {
  EXPECT_THAT(to_html(slow_port_report()), Not(HasSubstr("GPU-hours")));
}

std::string browser() {
  for (const char* const name : {"chromium", "chromium-browser", "google-chrome"}) {
    const Output found = run(std::string("command -v ") + name);
    if (found.exit_code == 0) return found.text.substr(0, found.text.find('\n'));
  }
  return "";
}

// Runs the browser without a network and a display. Returns its output.
Output browse(const std::string& flags, const std::string& folder) {
  return run("timeout -k 5 100 " + browser() +
             " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
             " --user-data-dir=" +
             folder + "/profile --host-resolver-rules='MAP * ~NOTFOUND' " + flags + " file://" +
             folder + "/page.html");
}

// After parsing the page, the browser's document has the numbers of the report; its light and dark
// screenshots differ, and neither is empty.
TEST(ReportHtml, ABrowserShowsTheNumbers) {
  if (browser().empty()) GTEST_SKIP() << "missing capability: chromium";
  testing::TemporaryFolder folder;
  const Report report = slow_port_report();
  std::ofstream(folder / "page.html") << to_html(report);
  const Output dom = browse("--dump-dom 2>/dev/null", folder.path());
  ASSERT_EQ(dom.exit_code, 0) << dom.text;
  ASSERT_THAT(dom.text, HasSubstr("</html>"));
  expect_numbers_of(report, dom.text);
  const std::vector<Attributes> faults = elements(dom.text, "<div class=\"fault CRITICAL\"");
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].at("fault"), "1");
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

// In a large fleet, faulty hosts come first, in the map and in the table.
TEST(ReportHtml, ABrowserShowsTheFaultyHostOfManyFirst) {
  if (browser().empty()) GTEST_SKIP() << "missing capability: chromium";
  testing::TemporaryFolder folder;
  Report report = example_report(80, 1, [](Port from, Port) {
    return from == Port{77, 0} ? 187.0 : 392.0;
  });
  report.judgement.findings = {
      port_finding("port-rate", "h77", 0, Direction::kTransmit, 187, 392, Unit::kGbps)};
  report.verdict = Verdict::kCritical;
  std::ofstream(folder / "page.html") << to_html(report);
  const Output dom = browse("--dump-dom 2>/dev/null", folder.path());
  ASSERT_EQ(dom.exit_code, 0) << dom.text;
  const std::vector<Attributes> hosts = elements(dom.text, "<div class=\"host");
  ASSERT_EQ(hosts.size(), 80U);
  EXPECT_EQ(hosts[0].at("host"), "h77");
  for (const Attributes& row : elements(dom.text, "<tr"))
    if (row.contains("host")) {
      EXPECT_EQ(row.at("host"), "h77");
      break;
    }
}

}  // namespace
}  // namespace weft::fabric
