// The page of --html: the document of --json with a script that renders it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "perf/validate/html/page.h"
#include "perf/validate/report/report.h"
#include "perf/validate/report/words.h"

namespace weft::fabric {

std::string to_html(const Report& report) {
  // Inside a script element, only "<" could end the data.
  std::string data;
  for (const char c : json_text(report)) {
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Forbid fetching: names may contain anything. The script writes names as text only.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>weft validate: {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<main><noscript>A script draws this page from the report below.</noscript></main>\n"
      "<script type=\"application/json\" id=\"report\">\n{}</script>\n<script>{}</script>\n"
      "</body>\n</html>\n",
      verdict_in_words(report), page_style(), data, page_script());
}

}  // namespace weft::fabric
