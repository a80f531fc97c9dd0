// Writes structs to JSON and reads them back with a single list of their fields.
//
// FieldsOf<T>::visit(archive, value) calls archive("key", value.member) for every member; the
// archive is a FieldWriter or a FieldReader. Non-finite numbers are written as null.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "topo/base/status.h"

namespace weft::fabric {

template <typename T>
struct FieldsOf;  // specialized per struct
template <typename E>
struct EnumWords;  // specialized per enumeration: `words`, by value

// Writes fields to an object. Leaves out empty texts, lists, maps, and empty optionals; with
// `nulls`, empty optionals become null.
class FieldWriter {
 public:
  explicit FieldWriter(bool nulls = false) : nulls_(nulls) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (!is_empty(value))
      json_[key] = written(value);
    else if constexpr (requires { value.has_value(); })
      if (nulls_) json_[key] = nullptr;
  }
  nlohmann::ordered_json take() { return std::move(json_); }

  template <typename T>
  static nlohmann::ordered_json written(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return EnumWords<T>::words[static_cast<std::size_t>(value)];
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (requires { FieldsOf<T>::named; }) {
      FieldWriter inner;
      FieldsOf<T>::visit(inner, value);
      return inner.take();
    } else if constexpr (requires { typename T::mapped_type; }) {
      auto json = nlohmann::ordered_json::object();
      for (const auto& [key, item] : value) json[fmt::format("{}", key)] = written(item);
      return json;
    } else if constexpr (requires { value.has_value(); }) {
      return written(*value);
    } else {
      auto json = nlohmann::ordered_json::array();
      for (const auto& item : value) json.push_back(written(item));
      return json;
    }
  }

 private:
  template <typename T>
  static bool is_empty(const T& value) {
    if constexpr (requires { value.has_value(); })
      return !value.has_value();
    else if constexpr (requires { value.empty(); })
      return value.empty();
    else
      return false;
  }

  const bool nulls_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

// Reads fields from an object; a missing field keeps its value. Throws Error naming the field and
// the wrong value.
class FieldReader {
 public:
  FieldReader(const nlohmann::ordered_json& json, std::string path)
      : json_(json), path_(std::move(path)) {
    if (!json.is_object()) throw Error(fmt::format("{} is not an object", where()));
  }

  template <typename T>
  void operator()(const char* key, T& value) const {
    if (const auto found = json_.find(key); found != json_.end())
      take(*found, path_.empty() ? key : fmt::format("{}.{}", path_, key), value);
  }

  // Throws Error if the object lacks the field.
  void demand(const char* key) const {
    if (!json_.contains(key)) throw Error(fmt::format("{} lacks \"{}\"", where(), key));
  }

  template <typename T>
  static void take(const nlohmann::ordered_json& json, const std::string& path, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::size_t i = 0;
      for (const std::string_view word : EnumWords<T>::words) {
        if (json.is_string() && json.get_ref<const std::string&>() == word) {
          value = static_cast<T>(i);
          return;
        }
        ++i;
      }
      refuse(json, path, "a known word");
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) refuse(json, path, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number() && !json.is_null()) refuse(json, path, "a number");
      value = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                                  : json.is_number_integer() &&
                                                        std::in_range<T>(json.get<std::int64_t>());
      if (!fits) refuse(json, path, "a whole number in range");
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) refuse(json, path, "a text");
      value = json.get<std::string>();
    } else if constexpr (requires { FieldsOf<T>::named; }) {
      FieldReader inner(json, path);
      FieldsOf<T>::visit(inner, value);
    } else if constexpr (requires { typename T::mapped_type; }) {
      take_map(json, path, value);
    } else if constexpr (requires { value.has_value(); }) {
      if (json.is_null())
        value.reset();
      else
        take(json, path, value.emplace());
    } else {
      if (!json.is_array()) refuse(json, path, "a list");
      value.clear();
      for (const auto& item : json) {
        const std::string where = fmt::format("{}[{}]", path, value.size());
        take(item, where, value.emplace_back());
      }
    }
  }

 private:
  template <typename Map>
  static void take_map(const nlohmann::ordered_json& json, const std::string& path, Map& map) {
    if (!json.is_object()) refuse(json, path, "an object");
    for (const auto& [text, item] : json.items()) {
      typename Map::key_type key;
      if constexpr (std::is_integral_v<typename Map::key_type>)
        take(nlohmann::ordered_json::parse(text, nullptr, false), path + " key", key);
      else
        key = text;
      take(item, fmt::format("{}.{}", path, text), map[key]);
    }
  }
  [[noreturn]] static void refuse(const nlohmann::ordered_json& json, const std::string& path,
                                  std::string_view wanted) {
    std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    throw Error(
        fmt::format("{} is {}, and no {}", path, text, wanted.substr(wanted.find(' ') + 1)));
  }
  std::string where() const { return path_.empty() ? "the document" : path_; }

  const nlohmann::ordered_json& json_;
  std::string path_;
};

}  // namespace weft::fabric
