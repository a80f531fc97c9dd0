// Numbers, places and findings as people read them. Every text of a report takes its words from
// here; titles and remedies come from the registry of checks.
#pragma once

#include <string>
#include <string_view>

#include "perf/validate/checks/finding.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/samples.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

// The verdict that a finding leads to: "INFO", "WARN", "CRITICAL", "TESTER", "UNKNOWN".
std::string_view severity_in_words(const Finding& finding);
std::string_view word_of(Verdict verdict);      // "CRITICAL"
std::string_view word_of(Direction direction);  // "transmit"; kBoth: "both"
std::string_view word_of(PlaceKind kind);       // "port"

// Three digits: "187", "9.41", "0.5"; "-" where the value is no number.
std::string three_digits(double value);
// "1.2e-4" and "0" for small shares, "1.2 %" from a thousandth on.
std::string small_share(double value);
std::string percent(double share);             // "9.5 %"
std::string in_unit(double value, Unit unit);  // "187 Gb/s", "1500 bytes", "1.2e-4 per packet"
// "183 to 191 Gb/s at 95 %", the finding's interval; "" where the finding has none.
std::string interval_in_words(const Finding& finding, double confidence);
std::string counted(std::size_t n, std::string_view noun);  // "1 host", "2 hosts"

// Replaces what a terminal would obey (control characters, broken UTF-8) by '?', line ends by
// blanks. Names and messages come from other hosts.
std::string printable(std::string_view text);

std::string in_words(const Where& where);        // "h3 rail 1 (mlx5_1)", "h3 -> h5 on rail 1"
std::string in_words(const Evidence& evidence);  // "hw.out_of_sequence 98, 0 expected"

std::string port_in_words(const Report& report, Port port);  // "h3 rail 1 (mlx5_1)"

// Title of the registry; of an id that it does not know, the id as words.
std::string title_of(std::string_view id);
// What to do about this very finding: the registry's remedy, or what its direction, its place or
// its being unknown leaves of that; "" of an unknown id.
std::string remedy_of(const Finding& finding);
// "likely, 183 to 191 Gb/s at 95 %; expected: declared 400 Gb/s, less headers 392".
std::string detail_in_words(const Finding& finding, const Report& report);

// in_words(Finding), in report.h, has a sentence of its own for this check.
bool has_sentence(std::string_view id);
// "CRITICAL", "OK (emulated)".
std::string verdict_in_words(const Report& report);
// "4 hosts x 2 rails, 8 ranks, tcp".
std::string fleet_in_words(const Report& report);
// "loss >= 2e-6 per packet, rate cuts >= 5 %", "" where the plan says nothing.
std::string limits_in_words(const Plan& plan);
// "one host: no pair to measure", "no time in the budget of 60 s".
// Probes that were left out, each with its reason; "": none.
std::string left_out_in_words(const Report& report);

}  // namespace weft::fabric
