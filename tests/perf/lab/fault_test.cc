// The runs of a fault matrix: drawn from the seed alone, within the lab, every kind in every round.
#include "perf/lab/matrix/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

MatrixOptions netlab_of(int hosts, int rails) {
  MatrixOptions options;
  options.lab.name = "netlab";
  options.lab.rails = rails;
  for (int h = 1; h <= hosts; ++h) options.lab.hosts.push_back("h" + std::to_string(h));
  return options;
}

std::string all_words(const std::vector<Trial>& trials) {
  std::string text;
  for (const Trial& trial : trials) {
    text += trial.id + ":";
    for (const LabFault& fault : trial.faults) text += " " + in_words(fault);
    text += "\n";
  }
  return text;
}

TEST(Faults, TheSeedSaysAllAndAnotherSeedSomethingElse) {
  MatrixOptions options = netlab_of(5, 2);
  options.pairs = 20;
  const std::string words = all_words(draw_trials(options));
  EXPECT_EQ(all_words(draw_trials(options)), words);
  options.seed = 2;
  EXPECT_NE(all_words(draw_trials(options)), words);
}

TEST(Faults, ARunIsTheSameWhateverElseIsRun) {
  MatrixOptions options = netlab_of(5, 2);
  std::map<std::string, std::string> all;
  for (const Trial& trial : draw_trials(options)) all[trial.id] = all_words({trial});
  options.runs = 3;
  options.faults = {"loss"};
  const std::vector<Trial> few = draw_trials(options);
  EXPECT_EQ(few.size(), 3 * 5 + 10);
  for (const Trial& trial : few) EXPECT_EQ(all_words({trial}), all[trial.id]);
}

TEST(Faults, PlacesAreInTheLabAndHostsVary) {
  MatrixOptions options = netlab_of(5, 3);
  options.runs = 100;
  const std::set<std::string> hosts(options.lab.hosts.begin(), options.lab.hosts.end());
  std::map<std::string, std::set<std::string>> seen;
  for (const Trial& trial : draw_trials(options)) {
    for (const LabFault& fault : trial.faults) {
      const bool wide = fault.place == FaultPlace::kRail || fault.place == FaultPlace::kLeaf;
      EXPECT_EQ(hosts.contains(fault.host), !wide) << trial.id;
      EXPECT_LT(fault.rail, 3);
      if (!wide) {
        EXPECT_NE(fault.peer, fault.host) << trial.id;
      }
      seen[trial.id.substr(0, trial.id.find('/'))].insert(place_word(fault));
    }
  }
  EXPECT_EQ(seen["rate-transmit"].size(), 15);
  EXPECT_EQ(seen["rate-rail"].size(), 3);
  // The first host writes the report, and rail 0 carries the control plane.
  EXPECT_THAT(seen["dead-rank"], Not(Contains("h1")));
  for (const std::string& place : seen["down"]) EXPECT_THAT(place, Not(HasSubstr("r0")));
}

TEST(Faults, EachRoundHasEveryKindAndCleanRunsAreSpread) {
  MatrixOptions options = netlab_of(5, 2);
  options.runs = 2;
  options.clean = 8;
  const std::vector<Trial> trials = draw_trials(options);
  std::vector<std::size_t> clean;
  std::size_t last_of_first_round = 0, first_of_second = trials.size();
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].faults.empty()) {
      clean.push_back(i);
    } else if (trials[i].id.ends_with("/0")) {
      last_of_first_round = i;
    } else {
      first_of_second = std::min(first_of_second, i);
    }
  }
  EXPECT_LT(last_of_first_round, first_of_second);
  ASSERT_EQ(clean.size(), 8);
  for (std::size_t i = 1; i < clean.size(); ++i) EXPECT_GT(clean[i], clean[i - 1] + 1);
}

// Equally many runs of each kind, over all its classes of place, and the same runs as with --runs.
TEST(Faults, RepeatedKindsTakeTheirPlacesInTurn) {
  MatrixOptions options = netlab_of(5, 2);
  options.faults = {"spell", "mtu", "loss"};
  options.clean = 0;
  options.runs = 4;
  std::map<std::string, std::string> all;
  for (const Trial& trial : draw_trials(options)) all[trial.id] = all_words({trial});
  options.repeat = 4;
  std::vector<std::string> ids;
  for (const Trial& trial : draw_trials(options)) {
    ids.push_back(trial.id);
    EXPECT_EQ(all_words({trial}), all[trial.id]);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"loss-transmit/0", "mtu/0", "spell-transmit/0",
                                           "loss-receive/0", "mtu/1", "spell-receive/0",
                                           "loss-port/0", "mtu/2", "spell-port/0", "loss-host/0",
                                           "mtu/3", "spell-transmit/1"}));
}

TEST(Faults, PairsCanBeToldApart) {
  MatrixOptions options = netlab_of(6, 2);
  options.runs = 1;
  options.pairs = 300;
  int pairs = 0;
  for (const Trial& trial : draw_trials(options)) {
    if (!trial.id.starts_with("pair/")) continue;
    ++pairs;
    ASSERT_EQ(trial.faults.size(), 2);
    const LabFault &a = trial.faults[0], &b = trial.faults[1];
    if (a.host.empty() && b.host.empty()) {
      EXPECT_NE(a.rail, b.rail);
    } else {
      EXPECT_NE(a.host, b.host) << in_words(a) << ", " << in_words(b);
    }
    for (const LabFault& fault : trial.faults) EXPECT_TRUE(find_fault_row(fault.kind)->in_pairs);
  }
  EXPECT_EQ(pairs, 300);
}

TEST(Faults, WhatALabDoesNotHaveIsNamed) {
  MatrixOptions options = netlab_of(4, 2);
  for (const char* const fault : {"gremlins", "corruption"}) {
    options.faults = {fault};
    try {
      draw_trials(options);
      FAIL() << fault;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("--faults ") + fault));
      EXPECT_THAT(error.what(), HasSubstr("swapped"));
    }
  }
  options.faults = {"leaf", "swapped"};
  options.lab.rails = 1;
  options.lab.hosts.pop_back();
  for (const Trial& trial : draw_trials(options)) EXPECT_TRUE(trial.faults.empty());
}

TEST(Faults, JsonKeepsAFault) {
  MatrixOptions options = netlab_of(5, 2);
  options.runs = 1;
  for (const Trial& trial : draw_trials(options))
    for (const LabFault& fault : trial.faults)
      EXPECT_EQ(fault_from_json(nlohmann::ordered_json::parse(to_json(fault).dump())), fault);
  EXPECT_ANY_THROW(fault_from_json({{"kind", "gremlins"}}));
}

}  // namespace
}  // namespace weft
