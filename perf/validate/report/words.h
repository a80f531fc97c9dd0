// Numbers, places and findings in words for users. All texts of a report use these; the registry of
// checks has the titles and remedies.
#pragma once

#include <string>
#include <string_view>

#include "perf/validate/checks/finding.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/samples.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

// Returns the verdict that a finding causes: "INFO", "WARN", "CRITICAL", "TESTER", "UNKNOWN".
std::string_view severity_in_words(const Finding& finding);
std::string_view word_of(Verdict verdict);      // "CRITICAL"
std::string_view word_of(Direction direction);  // "transmit"; kBoth: "both"
std::string_view word_of(PlaceKind kind);       // "port"

// Returns three digits: "187", "9.41", "0.5"; "-" if the value is not finite.
std::string three_digits(double value);
// "1.2e-4" and "0" for small fractions, "1.2 %" from a thousandth up.
std::string small_share(double value);
std::string percent(double share);             // "9.5 %"
std::string in_unit(double value, Unit unit);  // "187 Gb/s", "1500 bytes", "1.2e-4 per packet"
// "183 to 191 Gb/s at 95 %", the finding's interval; "" if it has none.
std::string interval_in_words(const Finding& finding, double confidence);
std::string counted(std::size_t n, std::string_view noun);  // "1 host", "2 hosts"

// Replaces control characters and invalid UTF-8 by '?', and line breaks and tabs by blanks. Names
// and messages are from other hosts and unsafe for a terminal.
std::string printable(std::string_view text);

std::string in_words(const Where& where);        // "h3 rail 1 (mlx5_1)", "h3 -> h5 on rail 1"
std::string in_words(const Evidence& evidence);  // "hw.out_of_sequence 98, 0 expected"

std::string port_in_words(const Report& report, Port port);  // "h3 rail 1 (mlx5_1)"

// Returns the title from the registry; for an unknown id, the id as words.
std::string title_of(std::string_view id);
// Returns the remedy for this finding: the registry's, or the part of it that applies to the
// finding's direction and place, or to an unknown finding; "" for an unknown id.
std::string remedy_of(const Finding& finding);
// "likely, 183 to 191 Gb/s at 95 %; expected: declared 400 Gb/s, less headers 392".
std::string detail_in_words(const Finding& finding, const Report& report);

// Returns whether in_words(Finding), in report.h, has a sentence for this check.
bool has_sentence(std::string_view id);
// "CRITICAL", "OK (emulated)".
std::string verdict_in_words(const Report& report);
// "4 hosts x 2 rails, 8 ranks, tcp".
std::string fleet_in_words(const Report& report);
// "loss >= 2e-6 per packet, rate cuts >= 5 %", "" if the plan has no limits.
std::string limits_in_words(const Plan& plan);
// Returns probes that were left out, each with its reason; "": none. Examples: "one host: no pair
// to measure", "no time in the budget of 60 s".
std::string left_out_in_words(const Report& report);

}  // namespace weft::fabric
