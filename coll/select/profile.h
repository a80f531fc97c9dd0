// Measured times of algorithms, by topology, kept in the user's cache between jobs.
//
// A profile is one small JSON file. Rank 0 reads it and tells the others, so that all of them
// choose from the same numbers. `weft tune` measures the times, and rank 0 writes them when its
// World ends. WEFT_PROFILE=FILE names another file; WEFT_PROFILE=off keeps no profile: the cost
// model alone decides.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "coll/schedule/algorithm.h"
#include "coll/types.h"

namespace weft {

// The class of messages of that many bytes: up to 2^class, and more than half of that.
inline int size_class_of(std::size_t bytes) { return bytes > 1 ? std::bit_width(bytes - 1) : 0; }

class Profile {
 public:
  Profile() = default;  // empty: knows nothing, and is on
  // Throws Error saying what is wrong with the text.
  static Profile parse(std::string_view text);
  // "off", or what parse() reads.
  std::string text() const;

  bool off() const { return off_; }
  void turn_off() { *this = Profile(), off_ = true; }
  std::size_t size() const { return times_.size(); }
  bool knows(const Shape& shape) const;  // any time of as many ranks and hosts

  // What jobs must have in common to share times ("8 ranks on 2 hosts, 2 rails of 400 Gb/s ...").
  std::string topology;

  // `us` of a message of `bytes`, over `samples` calls. Newer times count for more than old ones.
  void add(Collective collective, const Shape& shape, std::size_t bytes, std::string_view algorithm,
           double us, std::uint64_t samples);
  // 0 where nothing is known: neither of this size class, nor of the next ones measured below and
  // above, if these are no more than a factor of 16 apart; between those it is interpolated.
  double time_us(Collective collective, const Shape& shape, std::size_t bytes,
                 std::string_view algorithm) const;
  // Adds the times of `newer`, which count for more.
  void merge(const Profile& newer);

 private:
  struct Key {
    Collective collective;
    int ranks, hosts;
    bool deterministic;
    std::string algorithm;
    int size_class;
    auto operator<=>(const Key&) const = default;
  };
  struct Time {
    double us = 0;
    std::uint64_t samples = 0;
  };
  void add(const Key& key, double us, std::uint64_t samples);

  std::map<Key, Time> times_;
  bool off_ = false;
};

// Where the profile of a topology is kept: what WEFT_PROFILE names, else a file in weft's folder of
// the user's cache ($XDG_CACHE_HOME, ~/.cache), by its topology; empty where there is no such
// place, or WEFT_PROFILE=off.
std::string profile_path(std::string_view topology);

// Throws Error where WEFT_PROFILE names something that is there and no profile: a device, a folder,
// a file of another kind. Saving would replace it.
void check_named_profile();

// The file's profile. One that is not there is empty; one that cannot be read, or is of another
// topology, is empty too, with a warning in the log: the next save replaces it.
Profile load_profile(const std::string& path, std::string_view topology);
// The newest in the folder of profile_path() whose job had as many ranks and hosts; empty where
// there is none, or WEFT_PROFILE=off. For those who explain: a job goes by its whole topology.
Profile newest_profile(const Shape& shape);
// Merges with what others have saved meanwhile, and replaces the file at once. A warning in the log
// where that fails, or where check_named_profile() would throw.
void save_profile(const std::string& path, const Profile& profile) noexcept;

}  // namespace weft
