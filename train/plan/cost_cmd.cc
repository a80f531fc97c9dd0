// weft cost: energy and price of a run, and the price of repeating work after a restart.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "coll/jobs/report.h"
#include "topo/base/status.h"
#include "train/cli/commands.h"
#include "train/cli/options.h"
#include "train/plan/model_facts.h"

namespace weft {
namespace {

struct Arguments {
  std::int64_t gpus = 50000;
  double watts = 350, days = 60, price = 0.10, overhead = 1, checkpoint_min = 60;
  std::string json;
};

int cost(const Arguments& a) {
  const auto want = [](bool right, const char* flag, double value, const char* what) {
    if (!right) throw Error(fmt::format("{} {:g}: {}", flag, value, what));
  };
  want(a.gpus >= 1, "--gpus", static_cast<double>(a.gpus), "at least 1 is needed");
  want(a.watts > 0, "--watts", a.watts, "it must be above 0");
  want(a.days > 0, "--days", a.days, "it must be above 0");
  want(a.price >= 0, "--price", a.price, "it cannot be negative");
  want(a.overhead >= 1, "--overhead", a.overhead, "it is at least 1: a building takes power, too");
  want(a.checkpoint_min > 0, "--checkpoint-min", a.checkpoint_min, "it must be above 0");
  const double megawatt = static_cast<double>(a.gpus) * a.watts * a.overhead / 1e6;
  const double hours = 24 * a.days, megawatt_hours = megawatt * hours;
  const double dollars = megawatt_hours * 1e3 * a.price, hour = dollars / hours;
  // A failure loses half a checkpoint interval on average.
  const double lost = hour * a.checkpoint_min / 60 / 2;
  if (!a.json.empty()) {
    const nlohmann::json j = {{"schema", "weft.cost/1"},
                              {"gpus", a.gpus},
                              {"power_mw", megawatt},
                              {"hours", hours},
                              {"energy_mwh", megawatt_hours},
                              {"price_usd", dollars},
                              {"hour_usd", hour},
                              {"restart_usd", lost}};
    write_report(a.json, j.dump(2) + "\n");
    if (a.json == "-") return 0;
  }
  const auto whole = [](double v) {
    return v < 1e18 ? train::with_commas(static_cast<std::int64_t>(v + 0.5))
                    : fmt::format("{:.4g}", v);
  };
  fmt::print("power     {:.4g} MW ({} GPUs x {:.4g} W{})\n", megawatt, train::with_commas(a.gpus),
             a.watts, a.overhead > 1 ? fmt::format(" x {:.3g} for the building", a.overhead) : "");
  fmt::print("time      {:.4g} days = {} hours\n", a.days, whole(hours));
  fmt::print("energy    {} MWh\n", whole(megawatt_hours));
  fmt::print("price     {} $ = {:.2f} M$ at {:.2f} $/kWh; an hour costs {} $\n", whole(dollars),
             dollars / 1e6, a.price, whole(hour));
  fmt::print(
      "a restart from the last checkpoint, one every {:.4g} min, repeats {:.4g} min on "
      "average: {} $;\n          from the beginning at the end: all of it\n",
      a.checkpoint_min, a.checkpoint_min / 2, whole(lost));
  return 0;
}

}  // namespace

void add_cost(CLI::App& app, int& exit_code) {
  auto* c = app.add_subcommand("cost", "energy and price of a training run");
  const auto a = std::make_shared<Arguments>();
  const OptionAdder add(*c);
  add("--gpus", a->gpus, "GPUs");
  add("--watts", a->watts, "watts of a GPU under load");
  add("--days", a->days, "days that the run takes");
  add("--price", a->price, "$ per kWh");
  add("--overhead", a->overhead, "power of the building per power of the GPUs (PUE)");
  add("--checkpoint-min", a->checkpoint_min, "minutes between checkpoints");
  add_json_option(*c, a->json, "weft.cost/1");
  c->footer("Example: weft cost --gpus 1024 --days 30");
  c->callback([a, &exit_code] { exit_code = cost(*a); });
}

}  // namespace weft
