// Writes structs to JSON and reads them back, from a single list of their fields.
//
// fields(archive, value), a function in the struct's namespace, calls archive("key", value.member)
// for every member; an archive is a FieldWriter or a FieldReader. Non-finite numbers are written as
// null.
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

// T is `Struct` or `const Struct`.
template <typename T, typename Struct>
concept Of = std::same_as<std::remove_const_t<T>, Struct>;

// For an enumeration: `words`, its JSON strings, indexed by the enumerator's value.
template <typename E>
struct EnumWords;
// For a struct that is a single JSON value. Members: written(value) returns the JSON; taken(json,
// value) reads it, and returns false if it is not valid; `what` is the struct's name in errors ("a
// counter").
template <typename T>
struct JsonValue;

template <typename T>
inline constexpr bool kIsOptional = requires(const T& value) {
  value.has_value();
};
// A map or a list of pairs: an object in JSON.
template <typename T>
inline constexpr bool kIsKeyed = requires {
  typename T::value_type::second_type;
};
template <typename T>
inline constexpr bool kIsList =
    !kIsOptional<T> && !std::same_as<T, std::string> && requires(const T& value) {
  value.empty();
};

enum class Empty {
  kLeftOut,    // omits empty texts, lists, maps and optionals
  kTextsStay,  // likewise, but writes empty texts
  kNull,       // likewise, but writes empty optionals as null
};

class FieldWriter {
 public:
  explicit FieldWriter(Empty empty = Empty::kLeftOut) : empty_(empty) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (!is_left_out(value))
      json_[key] = write(value);
    else if (kIsOptional<T> && empty_ == Empty::kNull)
      json_[key] = nullptr;
  }
  // Omits the field if it has the default value.
  template <typename T>
  void operator()(const char* key, const T& value, const T& usual) {
    if (value != usual) (*this)(key, value);
  }
  // Writes the field even if it is empty.
  template <typename T>
  void always(const char* key, const T& value) {
    json_[key] = write(value);
  }
  nlohmann::ordered_json take() { return std::move(json_); }

  template <typename T>
  static nlohmann::ordered_json written(const T& value, Empty empty = Empty::kLeftOut) {
    return FieldWriter(empty).write(value);
  }

 private:
  template <typename T>
  nlohmann::ordered_json write(const T& value) const {
    if constexpr (std::is_enum_v<T>) {
      return EnumWords<T>::words[static_cast<std::size_t>(value)];
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (requires { JsonValue<T>::what; }) {
      return JsonValue<T>::written(value);
    } else if constexpr (kIsOptional<T>) {
      return write(*value);
    } else if constexpr (kIsKeyed<T>) {
      auto json = nlohmann::ordered_json::object();
      for (const auto& [key, item] : value) json[fmt::format("{}", key)] = write(item);
      return json;
    } else if constexpr (kIsList<T>) {
      auto json = nlohmann::ordered_json::array();
      for (const auto& item : value) json.push_back(write(item));
      return json;
    } else {
      FieldWriter inner(empty_);
      fields(inner, value);
      return inner.take();
    }
  }

  template <typename T>
  bool is_left_out(const T& value) const {
    if constexpr (kIsOptional<T>)
      return !value.has_value();
    else if constexpr (std::is_same_v<T, std::string>)
      return value.empty() && empty_ != Empty::kTextsStay;
    else if constexpr (kIsList<T>)
      return value.empty();
    else
      return false;
  }

  const Empty empty_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

// Which fields an object may lack.
enum class Missing {
  kKeepsValue,  // any field: the member keeps its value
  kIsRefused,   // only optionals and lists, since the writer has the same version
};

// Reads fields from an object. Throws Error naming the field and the wrong value.
class FieldReader {
 public:
  FieldReader(const nlohmann::ordered_json& json, std::string path,
              Missing missing = Missing::kKeepsValue)
      : json_(json), path_(std::move(path)), missing_(missing) {
    if (!json.is_object()) throw Error(fmt::format("{} is not an object", where()));
  }

  template <typename T>
  void operator()(const char* key, T& value) const {
    if (missing_ == Missing::kIsRefused && !kIsOptional<T> && !kIsList<T>) demand(key);
    if (const auto found = json_.find(key); found != json_.end())
      take(*found, path_.empty() ? key : fmt::format("{}.{}", path_, key), value);
  }
  template <typename T>
  void operator()(const char* key, T& value, const T& usual) const {
    value = usual;
    if (has(key)) (*this)(key, value);
  }

  template <typename T>
  void always(const char* key, T& value) const {
    (*this)(key, value);
  }
  bool has(const char* key) const { return json_.contains(key); }
  // Throws Error unless the object has the field.
  void demand(const char* key) const {
    if (!has(key)) throw Error(fmt::format("{} lacks \"{}\"", where(), key));
  }

 private:
  template <typename T>
  void take(const nlohmann::ordered_json& json, const std::string& path, T& value) const {
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
      if (!json.is_boolean()) refuse(json, path, "a Boolean");
      value = json.get<bool>();
    } else if constexpr (std::is_floating_point_v<T>) {
      const bool null = json.is_null() && missing_ == Missing::kKeepsValue;
      if (!json.is_number() && !null) refuse(json, path, "a number");
      value = null ? std::numeric_limits<T>::quiet_NaN() : json.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                                  : json.is_number_integer() &&
                                                        std::in_range<T>(json.get<std::int64_t>());
      if (!fits) refuse(json, path, "a whole number in range");
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) refuse(json, path, "a text");
      value = json.get<std::string>();
    } else if constexpr (requires { JsonValue<T>::what; }) {
      if (!JsonValue<T>::taken(json, value)) refuse(json, path, JsonValue<T>::what);
    } else if constexpr (kIsOptional<T>) {
      if (json.is_null() && missing_ == Missing::kKeepsValue)
        value.reset();
      else
        take(json, path, value.emplace());
    } else if constexpr (kIsKeyed<T>) {
      take_object(json, path, value);
    } else if constexpr (kIsList<T>) {
      if (!json.is_array()) refuse(json, path, "a list");
      value.clear();
      for (const auto& item : json) {
        const std::string where = fmt::format("{}[{}]", path, value.size());
        take(item, where, value.emplace_back());
      }
    } else {
      FieldReader inner(json, path, missing_);
      fields(inner, value);
    }
  }

  template <typename Keyed>
  void take_object(const nlohmann::ordered_json& json, const std::string& path,
                   Keyed& value) const {
    if (!json.is_object()) refuse(json, path, "an object");
    for (const auto& [text, item] : json.items()) {
      const std::string where = fmt::format("{}.{}", path, text);
      if constexpr (!requires { typename Keyed::mapped_type; }) {
        take(item, where, value.emplace_back(text, "").second);
      } else if constexpr (std::is_integral_v<typename Keyed::key_type>) {
        typename Keyed::key_type key;
        take(nlohmann::ordered_json::parse(text, nullptr, false), path + " key", key);
        take(item, where, value[key]);
      } else {
        take(item, where, value[text]);
      }
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
  const std::string path_;
  const Missing missing_;
};

// Reads a struct from a document. Throws Error.
template <typename T>
T read_fields(const nlohmann::ordered_json& json, Missing missing = Missing::kKeepsValue) {
  T value;
  FieldReader reader(json, "", missing);
  fields(reader, value);
  return value;
}

}  // namespace weft::fabric
