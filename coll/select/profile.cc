// Stores, merges and interpolates measured times, and reads and writes profile files. Does not
// measure or select.
#include "coll/select/profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "topo/base/log.h"
#include "transport/control/hmac.h"

namespace weft {
namespace {

constexpr std::string_view kSchema = "weft.profile/1";
// Maximum number of samples that the weight of an old time represents.
constexpr std::uint64_t kMemory = 16;
// Maximum number of size classes between the ends of an interpolation.
constexpr int kGap = 4;
constexpr std::size_t kMostBytes = 4u << 20;  // maximum size of a profile file
constexpr std::size_t kMostOfAMessage = std::size_t{1} << 63;

int hosts_of(const Shape& shape) { return std::max<int>(1, static_cast<int>(shape.hosts.size())); }

Collective collective_of(const std::string& text) {
  for (int c = 0; c < kCollectives; ++c)
    if (name(static_cast<Collective>(c)) == text) return static_cast<Collective>(c);
  throw Error(fmt::format("there is no collective '{}'", text));
}

// Conversion of a number out of range is undefined behavior.
template <typename T>
T whole(const nlohmann::json& number) {
  const bool fits = number.is_number_unsigned() ? std::in_range<T>(number.get<std::uint64_t>())
                                                : number.is_number_integer() &&
                                                      std::in_range<T>(number.get<std::int64_t>());
  if (!fits) throw Error(fmt::format("{} is not an integer in range", number.dump()));
  return number.get<T>();
}

}  // namespace

Profile Profile::parse(std::string_view text) {
  Profile profile;
  if (text == "off") {
    profile.off_ = true;
    return profile;
  }
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("schema").get<std::string>() != kSchema)
      throw Error(fmt::format("schema is {}, not {}", json.at("schema").dump(), kSchema));
    profile.topology = json.at("topology").get<std::string>();
    for (const auto& time : json.at("times")) {
      // A size that is not the bound of a size class would be read back as another one.
      const auto& bytes = time.at("bytes");
      if (!bytes.is_number_unsigned() || bytes.get<std::uint64_t>() > kMostOfAMessage)
        throw Error(fmt::format("invalid message size {}", bytes.dump()));
      const Key key{.collective = collective_of(time.at("collective").get<std::string>()),
                    .ranks = whole<int>(time.at("ranks")),
                    .hosts = whole<int>(time.at("hosts")),
                    .deterministic = time.at("deterministic").get<bool>(),
                    .algorithm = time.at("algorithm").get<std::string>(),
                    .size_class = size_class_of(bytes.get<std::size_t>())};
      const double us = time.at("us").get<double>();
      if (!(us > 0) || !std::isfinite(us))
        throw Error(fmt::format("invalid time {} us", time.at("us").dump()));
      if (profile.times_.contains(key)) throw Error(fmt::format("duplicate entry {}", time.dump()));
      profile.add(key, us, whole<std::uint64_t>(time.at("samples")));
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(e.what());
  }
  return profile;
}

std::string Profile::text() const {
  if (off_) return "off";
  auto times = nlohmann::ordered_json::array();
  for (const auto& [key, time] : times_)
    times.push_back({{"collective", name(key.collective)},
                     {"ranks", key.ranks},
                     {"hosts", key.hosts},
                     {"deterministic", key.deterministic},
                     {"algorithm", key.algorithm},
                     {"bytes", std::size_t{1} << key.size_class},
                     {"us", time.us},
                     {"samples", time.samples}});
  return nlohmann::ordered_json{
      {"schema", kSchema}, {"topology", topology}, {"times", std::move(times)}}
      .dump(1);
}

void Profile::add(const Key& key, double us, std::uint64_t samples) {
  Time& time = times_[key];
  const std::uint64_t old = std::min(time.samples, kMemory),
                      now = std::max<std::uint64_t>(1, samples);
  // As double: a file may contain any number, and the sum must not overflow.
  const auto share = static_cast<double>(now);
  time.us += (us - time.us) * (share / (static_cast<double>(old) + share));
  time.samples = old + std::min(now, kMemory);
}

void Profile::add(Collective collective, const Shape& shape, std::size_t bytes,
                  std::string_view algorithm, double us, std::uint64_t samples) {
  if (off_ || !(us > 0) || !std::isfinite(us) || bytes > kMostOfAMessage ||
      !shape.slow_ports.empty())
    return;
  add({collective, shape.nranks, hosts_of(shape), shape.deterministic, std::string(algorithm),
       size_class_of(bytes)},
      us, samples);
}

double Profile::time_us(Collective collective, const Shape& shape, std::size_t bytes,
                        std::string_view algorithm) const {
  if (!shape.slow_ports.empty()) return 0;
  const Key key{collective,          shape.nranks,           hosts_of(shape),
                shape.deterministic, std::string(algorithm), size_class_of(bytes)};
  const auto above = times_.lower_bound(key);
  const auto same = [&](const Key& k) {
    return k.collective == key.collective && k.ranks == key.ranks && k.hosts == key.hosts &&
           k.deterministic == key.deterministic && k.algorithm == key.algorithm;
  };
  if (above == times_.end() || !same(above->first)) return 0;
  if (above->first.size_class == key.size_class) return above->second.us;
  if (above == times_.begin()) return 0;
  const auto below = std::prev(above);
  const int gap = above->first.size_class - below->first.size_class;
  if (!same(below->first) || gap > kGap) return 0;
  const double at = static_cast<double>(key.size_class - below->first.size_class) / gap;
  return below->second.us * std::pow(above->second.us / below->second.us, at);
}

bool Profile::knows(const Shape& shape) const {
  return std::ranges::any_of(times_, [&](const auto& t) {
    return t.first.ranks == shape.nranks && t.first.hosts == hosts_of(shape);
  });
}

void Profile::merge(const Profile& newer) {
  for (const auto& [key, time] : newer.times_) add(key, time.us, time.samples);
}

std::string profile_path(std::string_view topology) {
  if (const char* named = std::getenv("WEFT_PROFILE"); named && *named)
    return std::string_view(named) == "off" ? "" : named;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache && *cache == '/')
    folder = cache;
  else if (home && *home == '/')
    folder = std::filesystem::path(home) / ".cache";
  else
    return "";
  std::uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : topology) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return folder / "weft" / fmt::format("profile-{:016x}.json", h);
}

void check_named_profile() {
  const char* named = std::getenv("WEFT_PROFILE");
  if (!named || !*named || std::string_view(named) == "off") return;
  std::error_code error;
  const auto what = std::filesystem::status(named, error);
  if (!std::filesystem::exists(what)) return;
  const auto refuse = [&](std::string_view why) {
    throw Error(fmt::format("WEFT_PROFILE={} {}: name a new file, a profile, or off", named, why));
  };
  if (!std::filesystem::is_regular_file(what)) refuse("is not a regular file");
  // A truncated or edited profile still contains the schema; an empty file may be replaced by a
  // profile.
  char text[256] = {};
  std::ifstream file(named, std::ios::binary);
  file.read(text, sizeof text);
  const std::string_view begins(text, static_cast<std::size_t>(file.gcount()));
  if (!begins.empty() && begins.find("weft.profile/") == begins.npos)
    refuse("is not a profile and was left unchanged");
}

Profile load_profile(const std::string& path, std::string_view topology) {
  Profile empty;
  empty.topology = topology;
  if (path.empty()) {
    empty.turn_off();
    return empty;
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return empty;
  try {
    if (bytes > kMostBytes) throw Error(fmt::format("the file is too large ({} bytes)", bytes));
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(std::strerror(errno));
    Profile profile = Profile::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    if (profile.topology == topology) return profile;
    throw Error(
        fmt::format("it is for topology '{}', this one is '{}'", profile.topology, topology));
  } catch (const std::exception& e) {  // also from the stream, on a disk error
    log().warn("weft: profile {}: {}; starting a new one", path, e.what());
  }
  return empty;
}

Profile newest_profile(const Shape& shape) {
  const std::string any = profile_path("");
  Profile newest;
  auto when = std::filesystem::file_time_type::min();
  std::error_code error;
  const bool named = std::getenv("WEFT_PROFILE") && *std::getenv("WEFT_PROFILE");
  const auto look = [&](const std::filesystem::path& path) {
    const auto written = std::filesystem::last_write_time(path, error);
    if (error || written < when) return;
    std::ifstream file(path, std::ios::binary);
    try {
      Profile profile = Profile::parse(std::string(std::istreambuf_iterator<char>(file), {}));
      if (!profile.knows(shape)) return;
      newest = std::move(profile);
      when = written;
    } catch (const std::exception&) {  // the job that uses the file reports the error
    }
  };
  if (any.empty()) return newest;
  if (named) {
    look(any);
    return newest;
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(any).parent_path(), error))
    if (entry.path().extension() == ".json") look(entry.path());
  return newest;
}

void save_profile(const std::string& path, const Profile& profile) noexcept {
  if (path.empty() || profile.off()) return;
  std::string fresh;
  try {
    fresh = path + '.' + hex(random_bytes(8));  // random, since pids repeat in containers
    check_named_profile();
    if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    Profile all = load_profile(path, profile.topology);
    all.merge(profile);
    std::ofstream file(fresh, std::ios::binary);
    file << all.text() << '\n';
    file.close();
    if (!file) throw Error("write failed");
    std::filesystem::rename(fresh, path);
  } catch (const std::exception& e) {
    std::error_code ignored;
    if (!fresh.empty()) std::filesystem::remove(fresh, ignored);
    log().warn("weft: profile {} is not saved: {}", path, e.what());
  }
}

}  // namespace weft
