// Rows of a few axes in which every pair of values of every two axes occurs: what independent axes
// need instead of their full product. Combinations that once failed are kept by name.
#pragma once

#include <algorithm>
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
  explicit Pairwise(Axis<T>... axes) : axes_(std::move(axes)...) {}

  Pairwise& where(std::function<bool(const T&...)> exists) {
    exists_ = std::move(exists);
    return *this;
  }
  // A row that is always there, whatever else covers its pairs, and the first of all.
  Pairwise& keep(const char* name, T... values) {
    kept_.emplace_back(name, Row(std::move(values)...));
    return *this;
  }

  // Kept rows, then as few as a greedy choice finds until every pair that exists has occurred.
  // Prints one line: what the axes are and how many rows stand for how many combinations.
  std::vector<Row> rows(const char* title) const {
    std::vector<Row> chosen, all = product(std::index_sequence_for<T...>());
    std::vector<std::vector<std::size_t>> pairs;  // of each of `all`, what it would cover
    for (const Row& row : all) pairs.push_back(pairs_of(row));
    std::vector<bool> covered(kAxes * kAxes * longest() * longest());
    const auto take = [&](const Row& row) {
      for (const std::size_t p : pairs_of(row)) covered[p] = true;
      chosen.push_back(row);
    };
    for (const auto& [name, row] : kept_) take(row);
    // What a row adds only shrinks, so that one is looked at again when it would be next.
    // Neighbours in the product are alike: a stride takes them apart.
    std::vector<std::vector<std::size_t>> by_gain(kPairs + 1);
    const std::size_t stride = all.size() % 7919 ? 7919 : 7907;
    for (std::size_t i = 0; i < all.size(); ++i) by_gain[kPairs].push_back(i * stride % all.size());
    for (std::size_t gain = kPairs; gain > 0; --gain)
      for (std::size_t i = 0; i < by_gain[gain].size(); ++i) {
        const std::size_t candidate = by_gain[gain][i];
        std::size_t adds = 0;
        for (const std::size_t p : pairs[candidate]) adds += !covered[p];
        if (adds == gain)
          take(all[candidate]);
        else
          by_gain[adds].push_back(candidate);
      }
    std::printf("%s\n", summary(title, chosen.size(), all.size()).c_str());
    return chosen;
  }

 private:
  std::size_t longest() const {
    std::size_t most = 0;
    std::apply([&](const auto&... axis) { ((most = std::max(most, axis.values.size())), ...); },
               axes_);
    return most;
  }

  template <std::size_t... I>
  std::vector<Row> product(std::index_sequence<I...>) const {
    std::vector<Row> all;
    const std::size_t sizes[] = {std::get<I>(axes_).values.size()...};
    std::size_t n = 1;
    for (const std::size_t size : sizes) n *= size;
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t at[kAxes], rest = i;
      for (std::size_t a = kAxes; a-- > 0; rest /= sizes[a]) at[a] = rest % sizes[a];
      Row row(std::get<I>(axes_).values[at[I]]...);
      if (!exists_ || std::apply(exists_, row)) all.push_back(std::move(row));
    }
    return all;
  }

  std::vector<std::size_t> pairs_of(const Row& row) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      // A kept row may have values that no axis has: nothing else needs them.
      const std::size_t at[] = {index(std::get<I>(axes_).values, std::get<I>(row))...};
      const std::size_t sizes[] = {std::get<I>(axes_).values.size()...}, most = longest();
      std::vector<std::size_t> all;
      for (std::size_t a = 0; a < kAxes; ++a)
        for (std::size_t b = a + 1; b < kAxes; ++b)
          if (at[a] < sizes[a] && at[b] < sizes[b])
            all.push_back(((a * kAxes + b) * most + at[a]) * most + at[b]);
      return all;
    }
    (std::index_sequence_for<T...>());
  }
  template <class V>
  static std::size_t index(const std::vector<V>& values, const V& value) {
    return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) -
                                    values.begin());
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

  std::tuple<Axis<T>...> axes_;
  std::function<bool(const T&...)> exists_;
  std::vector<std::pair<const char*, Row>> kept_;
};

}  // namespace weft::testing
