// A profile keeps the measured times of algorithms on a topology, in the user's cache.
//
// The profile is one small JSON file. Rank 0 reads it and sends it to the other ranks, so all ranks
// choose by the same numbers. `weft tune` measures the times, and rank 0 writes them when its
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

// The size class of a message: more than 2^(class - 1) and up to 2^class bytes.
inline int size_class_of(std::size_t bytes) { return bytes > 1 ? std::bit_width(bytes - 1) : 0; }

class Profile {
 public:
  Profile() = default;  // empty, and not off
  // Throws Error with the reason if the text is not a profile.
  static Profile parse(std::string_view text);
  // Returns "off", or a text that parse() reads.
  std::string text() const;

  bool off() const { return off_; }
  void turn_off() { *this = Profile(), off_ = true; }
  std::size_t size() const { return times_.size(); }
  bool knows(const Shape& shape) const;  // has a time for this number of ranks and hosts

  // What jobs must have in common to share times ("8 ranks on 2 hosts, 2 rails of 400 Gb/s ...").
  std::string topology;

  // Adds the time `us` of a message of `bytes`, over `samples` calls. New times outweigh old ones.
  // Times with slow ports (Shape::slow_ports) are not kept: add() and time_us() ignore such shapes.
  void add(Collective collective, const Shape& shape, std::size_t bytes, std::string_view algorithm,
           double us, std::uint64_t samples);
  // Returns the time of this size class. Without one, interpolates between the next classes
  // measured below and above, if they are at most a factor of 16 apart; otherwise returns 0.
  double time_us(Collective collective, const Shape& shape, std::size_t bytes,
                 std::string_view algorithm) const;
  // Adds the times of `newer`, which outweigh the times of this profile.
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

// Returns the path of a topology's profile: the file that WEFT_PROFILE names, else a file named
// after the topology in weft's folder of the user's cache ($XDG_CACHE_HOME, ~/.cache). Empty when
// there is no such folder, or WEFT_PROFILE=off.
std::string profile_path(std::string_view topology);

// Throws Error if WEFT_PROFILE names something that exists and is not a profile (a device, a
// folder, another kind of file): save_profile() would replace it.
void check_named_profile();

// Reads a profile. A missing file gives an empty profile. So does a file that cannot be read or has
// another topology, with a warning in the log: the next save replaces that file.
Profile load_profile(const std::string& path, std::string_view topology);
// Returns the newest profile in the folder of profile_path() that knows() the shape; empty if there
// is none, or WEFT_PROFILE=off. Only explanations use it: a job needs its own topology.
Profile newest_profile(const Shape& shape);
// Merges the profile with what other jobs have saved since, and replaces the file atomically.
// Logs a warning when that fails, or when check_named_profile() would throw.
void save_profile(const std::string& path, const Profile& profile) noexcept;

}  // namespace weft
