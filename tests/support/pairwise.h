// All-pairs test rows: every pair of values of any two axes occurs in some row, instead of their
// full product. Combinations that once failed are kept by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::testing {

template <class T>
struct Axis {
  const char* name;
  std::vector<T> values;
};

// The same rows on every machine and in every run. Not thread-safe.
//
//   Pairwise cases(Axis<Collective>{"collective", {...}}, Axis<bool>{"in place", {false, true}});
//   cases.where([](Collective c, bool in_place) { ... });  // only these combinations exist
//   cases.keep("staged in place", Collective::kAllToAll, true);
//   for (const auto& [collective, in_place] : cases.rows("Name of the test")) ...
template <class... T>
class Pairwise {
  static constexpr std::size_t kAxes = sizeof...(T), kPairs = kAxes * (kAxes - 1) / 2;
  static_assert(kAxes > 1);

 public:
  using Row = std::tuple<T...>;
  explicit Pairwise(Axis<T>... axes)
      : sizes_{axes.values.size()...},
        longest_(std::max({axes.values.size()...})),
        axes_(std::move(axes)...) {}

  Pairwise& where(std::function<bool(const T&...)> exists) {
    exists_ = std::move(exists);
    return *this;
  }
  // Adds a fixed row, placed first even if other rows cover its pairs.
  Pairwise& keep(const char* name, T... values) {
    kept_.emplace_back(name, Row(std::move(values)...));
    return *this;
  }

  // Kept rows, then a greedy selection that covers all valid pairs. Prints one line: the axes, the
  // number of rows, and the number of combinations.
  std::vector<Row> rows(const char* title) const {
    constexpr auto kAll = std::index_sequence_for<T...>();
    const std::vector<Indices> all = product(kAll);
    std::vector<bool> covered(kAxes * kAxes * longest_ * longest_);
    std::vector<Row> chosen;
    for (const auto& [name, row] : kept_) {
      each_pair(indices_of(row, kAll), [&](std::size_t p) { covered[p] = true; });
      chosen.push_back(row);
    }
    // A row's gain only shrinks, so it is recomputed only when the row is next. Neighbors in the
    // product are similar; the stride separates them.
    std::vector<std::vector<std::size_t>> by_gain(kPairs + 1);
    const std::size_t stride = all.size() % 7919 ? 7919 : 7907;
    for (std::size_t i = 0; i < all.size(); ++i) by_gain[kPairs].push_back(i * stride % all.size());
    for (std::size_t gain = kPairs; gain > 0; --gain)
      for (const std::size_t candidate : by_gain[gain]) {
        std::size_t adds = 0;
        each_pair(all[candidate], [&](std::size_t p) { adds += !covered[p]; });
        if (adds < gain) {
          by_gain[adds].push_back(candidate);
          continue;
        }
        each_pair(all[candidate], [&](std::size_t p) { covered[p] = true; });
        chosen.push_back(row_of(all[candidate], kAll));
      }
    std::printf("%s\n", summary(title, chosen.size(), all.size()).c_str());
    return chosen;
  }

 private:
  using Indices = std::array<std::size_t, kAxes>;  // indices of a row's values in their axes

  template <std::size_t... I>
  Row row_of(const Indices& at, std::index_sequence<I...>) const {
    return Row(std::get<I>(axes_).values[at[I]]...);
  }
  // A kept row may have values outside the axes, which no other row must cover.
  template <std::size_t... I>
  Indices indices_of(const Row& row, std::index_sequence<I...>) const {
    const auto index = [](const auto& values, const auto& value) {
      return static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
    };
    return {index(std::get<I>(axes_).values, std::get<I>(row))...};
  }
  template <std::size_t... I>
  std::vector<Indices> product(std::index_sequence<I...> sequence) const {
    std::vector<Indices> all;
    Indices at{};
    for (std::size_t turned = 0; turned < kAxes;) {
      if (!exists_ || std::apply(exists_, row_of(at, sequence))) all.push_back(at);
      for (turned = 0; turned < kAxes && ++at[turned] == sizes_[turned]; ++turned) at[turned] = 0;
    }
    return all;
  }
  // Calls `act` with the number of each pair of values in a row.
  template <class Act>
  void each_pair(const Indices& at, const Act& act) const {
    for (std::size_t a = 0; a < kAxes; ++a)
      for (std::size_t b = a + 1; b < kAxes; ++b)
        if (at[a] < sizes_[a] && at[b] < sizes_[b])
          act(((a * kAxes + b) * longest_ + at[a]) * longest_ + at[b]);
  }

  std::string summary(const char* title, std::size_t rows, std::size_t exist) const {
    std::string text = std::string(title) + ": every pair of";
    std::size_t n = 1;
    const auto add = [&](const char* name, std::size_t size) {
      text += (n == 1 ? " " : " x ") + std::to_string(size) + " " + name;
      n *= size;
    };
    std::apply([&](const auto&... axis) { (add(axis.name, axis.values.size()), ...); }, axes_);
    text += ": " + std::to_string(rows) + " rows of " + std::to_string(n);
    if (exist != n) text += ", of which " + std::to_string(exist) + " exist";
    for (const auto& [name, row] : kept_) text += std::string("; kept: ") + name;
    return text;
  }

  const Indices sizes_;  // sizes of the axes
  const std::size_t longest_;
  const std::tuple<Axis<T>...> axes_;
  std::function<bool(const T&...)> exists_;
  std::vector<std::pair<const char*, Row>> kept_;
};

}  // namespace weft::testing
