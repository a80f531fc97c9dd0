// A profile stores the measured times of algorithms on a topology, in the user's cache.
//
// The profile is a small JSON file. Rank 0 reads it and sends it to the other ranks, so that all
// ranks select by the same times. `weft tune` measures the times, and rank 0 writes them when its
// World ends. WEFT_PROFILE=FILE selects another file; with WEFT_PROFILE=off no profile is read or
// written, and the cost model alone selects.
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

// The size class of a message: more than 2^(class - 1) and up to 2^class bytes.
inline int size_class_of(std::size_t bytes) { return bytes > 1 ? std::bit_width(bytes - 1) : 0; }

class Profile {
 public:
  Profile() = default;  // empty, and not "off"
  // Throws Error with the reason if the text is not a valid profile.
  static Profile parse(std::string_view text);
  // Returns "off", or a text that parse() accepts.
  std::string text() const;

  bool off() const { return off_; }
  void turn_off() { *this = Profile(), off_ = true; }
  std::size_t size() const { return times_.size(); }
  bool knows(const Shape& shape) const;  // contains a time for this number of ranks and hosts

  // The properties that jobs must share to use the same times ("8 ranks on 2 hosts, 2 rails of 400
  // Gb/s ...").
  std::string topology;

  // Adds the time `us` of a message of `bytes`, averaged over `samples` calls. New times have a
  // larger weight than old ones. Times with slow ports (Shape::slow_ports) are not stored: add()
  // and time_us() ignore such shapes.
  void add(Collective collective, const Shape& shape, std::size_t bytes, std::string_view algorithm,
           double us, std::uint64_t samples);
  // Returns the time of this size class. If it was not measured, interpolates between the nearest
  // measured classes below and above if they differ by at most a factor of 16; otherwise returns 0.
  double time_us(Collective collective, const Shape& shape, std::size_t bytes,
                 std::string_view algorithm) const;
  // Adds the times of `newer`, which have a larger weight than the times of this profile.
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

// Returns the path of a topology's profile: the file in WEFT_PROFILE, otherwise a file named after
// the topology in weft's folder of the user's cache ($XDG_CACHE_HOME, ~/.cache). Empty if that
// folder does not exist, or with WEFT_PROFILE=off.
std::string profile_path(std::string_view topology);

// Throws Error if the path in WEFT_PROFILE exists and is not a profile (a device, a folder, another
// kind of file), since save_profile() would replace it.
void check_named_profile();

// Reads a profile. Returns an empty profile if the file does not exist. Also returns an empty
// profile, and logs a warning, if the file cannot be read or belongs to another topology: the next
// save replaces that file.
Profile load_profile(const std::string& path, std::string_view topology);
// Returns the newest profile in the folder of profile_path() for which knows(shape) is true; an
// empty profile if none is found, or with WEFT_PROFILE=off. Only explanations use it, since a job
// requires a profile of its own topology.
Profile newest_profile(const Shape& shape);
// Merges the profile with the times that other jobs have saved since it was loaded, and replaces
// the file atomically. Logs a warning if that fails, or if check_named_profile() would throw.
void save_profile(const std::string& path, const Profile& profile) noexcept;

}  // namespace weft
