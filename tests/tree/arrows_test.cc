// Checks the #includes of all sources against the allowed dependencies between folders. Apart from
// includes, it ignores the files' contents.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

// A room, and the other rooms of its library that it may include. A library may include every room
// of the libraries in its row of kLibraries.
struct Arrows {
  std::string_view from;
  std::string_view to;
};

constexpr Arrows kLibraries[] = {
    {"topo", ""},
    {"transport", "topo"},
    {"coll", "topo transport"},
    {"train", "topo transport coll"},
    {"perf", "topo transport coll"},
};

// "coll" is the folder itself, "coll/api.cc" are the sources of a room whose headers are below
// others.
constexpr Arrows kRooms[] = {
    {"topo/base", ""},
    {"topo", "topo/base"},

    {"transport", ""},
    {"transport/memory", ""},
    {"transport/messages", "transport"},
    {"transport/control", ""},
    {"transport/loaded", ""},
    {"transport/job", "transport/control transport/loaded"},
    {"transport/launch", "transport/control transport/job"},
    {"transport/gpu", "transport/memory"},
    {"transport/integrity", "transport transport/messages transport/memory"},
    {"transport/rails", "transport transport/messages transport/control transport/job"},
    {"transport/sim", "transport transport/messages"},
    {"transport/shm", "transport transport/messages transport/memory transport/job"},
    {"transport/ucx",
     "transport transport/messages transport/memory transport/gpu transport/job transport/loaded"},
    {"transport/tcp", "transport transport/messages transport/control transport/job"},
    {"transport/verbs/connections", "transport transport/messages transport/job"},
    {"transport/verbs",
     "transport transport/messages transport/memory transport/gpu transport/job transport/loaded "
     "transport/verbs/connections"},
    {"transport/factory",
     "transport transport/control transport/job transport/tcp transport/ucx transport/verbs"},

    {"coll", ""},
    {"coll/schedule", "coll"},
    {"coll/engine", "coll coll/schedule"},
    {"coll/select", "coll coll/schedule coll/engine"},
    {"coll/api", "coll"},
    {"coll/observe", "coll coll/api coll/schedule coll/engine coll/select"},
    {"coll/runtime", "coll coll/api coll/schedule coll/engine coll/select coll/observe"},
    {"coll/tasks", "coll coll/engine coll/runtime"},
    {"coll/codec", "coll coll/api coll/schedule coll/engine coll/runtime"},
    {"coll/gpu", "coll coll/api coll/schedule coll/engine coll/runtime coll/tasks"},
    {"coll/api.cc",
     "coll coll/api coll/schedule coll/engine coll/select coll/observe coll/runtime coll/tasks "
     "coll/codec coll/gpu"},
    {"coll/sim", "coll coll/schedule coll/engine coll/select coll/runtime"},
    {"coll/jobs", "coll coll/api coll/engine coll/runtime"},
    {"coll/bindings/c", "coll/api"},
    {"coll/bindings/mpi", "coll coll/api coll/runtime"},
    {"coll/bindings/torch/csrc", ""},

    {"train/base", ""},
    {"train/device", "train/base"},
    {"train/operators", "train/base train/device"},
    {"train/device.cc", "train/base train/device train/operators"},
    {"train/mesh", "train/operators"},
    {"train/model", "train/base train/device train/operators train/mesh"},
    {"train/pipeline", "train/operators train/model"},
    {"train/parallel", "train/operators train/mesh train/model"},
    {"train/checkpoint", "train/model"},
    {"train",
     "train/base train/operators train/mesh train/model train/pipeline train/parallel "
     "train/checkpoint"},
    {"train/server", "train train/mesh train/model train/parallel"},
    {"train/spiral", "train/operators train/mesh train/model train/pipeline train/parallel"},
    {"train/plan", "train/model train/pipeline train/cli"},
    {"train/cli",
     "train train/base train/device train/operators train/mesh train/model train/pipeline "
     "train/parallel train/checkpoint train/server train/spiral"},

    {"perf/stats", ""},
    {"perf/cli", ""},
    {"perf/predict", "perf/stats perf/cli"},
    {"perf/collective", "perf/stats perf/cli perf/predict"},
    {"perf/sweep", "perf/stats perf/cli perf/predict perf/collective"},
    {"perf/pair", "perf/stats perf/cli perf/collective"},
    {"perf/inspect", "perf/cli"},
    {"perf/lab", "perf/cli"},
    {"perf/replay", "perf/cli perf/predict"},
    {"perf/replay/formats", "perf/replay"},
    {"perf/replay.cc", "perf/cli perf/predict perf/replay perf/replay/formats"},
    {"perf/validate/facts", ""},
    {"perf/validate/facts/devices", "perf/validate/facts"},
    {"perf/validate/facts.cc", "perf/validate/facts perf/validate/facts/devices"},
    {"perf/validate/probes", "perf/validate/facts perf/pair"},
    {"perf/validate/locate", "perf/validate/facts perf/validate/probes"},
    {"perf/validate/conduct", "perf/validate/facts perf/validate/probes perf/validate/locate"},
    {"perf/validate/sim",
     "perf/validate/facts perf/validate/probes perf/validate/locate perf/validate/conduct"},
    {"perf/validate/checks", "perf/validate/facts perf/validate/probes perf/validate/locate"},
    {"perf/validate/checks/devices", "perf/validate/checks perf/validate/facts"},
    {"perf/validate/report",
     "perf/validate/facts perf/validate/probes perf/validate/locate perf/validate/checks"},
    {"perf/validate/html",
     "perf/validate/facts perf/validate/probes perf/validate/locate perf/validate/checks "
     "perf/validate/report"},
    {"perf/validate/slurm", "perf/cli perf/validate/checks"},
    {"perf/validate",
     "perf/cli perf/collective perf/predict perf/validate/facts perf/validate/probes "
     "perf/validate/locate perf/validate/conduct perf/validate/sim perf/validate/checks "
     "perf/validate/report perf/validate/html perf/validate/slurm"},
};

constexpr std::size_t kMostFiles = 25;

std::set<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

const Arrows* row_of(std::string_view room, std::span<const Arrows> table) {
  for (const Arrows& row : table)
    if (row.from == room) return &row;
  return nullptr;
}

std::string library_of(const std::string& path) { return path.substr(0, path.find('/')); }

// The room of a path below the root: its folder, or the row for the folder's sources.
std::string room_of(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::string sources = folder + ".cc";
  return path.ends_with(".cc") && row_of(sources, kRooms) ? sources : folder;
}

// Why the file `from` may not include `to`; empty if it may.
std::string forbidden(const std::string& from, const std::string& to) {
  const std::string library = library_of(from), other = library_of(to);
  if (library != other) {
    const Arrows* row = row_of(library, kLibraries);
    if (row && words(row->to).contains(other)) return "";
    return library + " may not include " + other;
  }
  const std::string room = room_of(from), target = to.substr(0, to.rfind('/'));
  if (room == target) return "";
  const Arrows* row = row_of(room, kRooms);
  if (!row) return room + " is in no row of kRooms";
  if (words(row->to).contains(target)) return "";
  return room + " may not include " + target;
}

// The forbidden includes in `text`, as "file:line: includes x: why".
std::vector<std::string> backward(const std::string& file, std::istream& text) {
  static const std::regex include(R"(^#include "((topo|transport|coll|train|perf)/[^"]+)\")");
  std::vector<std::string> found;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string why = forbidden(file, match[1]);
    if (!why.empty())
      found.push_back(file + ":" + std::to_string(number) + ": includes " + match[1].str() + ": " +
                      why);
  }
  return found;
}

// Sources and headers of the libraries, as paths below the root.
std::vector<std::string> source_files() {
  std::vector<std::string> files;
  const fs::path root = WEFT_SOURCE_DIR;
  for (const Arrows& library : kLibraries)
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / library.from)) {
      const std::string extension = entry.path().extension();
      // `pip install` builds in its folder.
      if (entry.path().string().find("/torch/build/") != std::string::npos) continue;
      if (extension == ".h" || extension == ".cc" || extension == ".cu")
        files.push_back(fs::relative(entry.path(), root));
    }
  return files;
}

TEST(Arrows, NoIncludeRunsBack) {
  std::vector<std::string> all;
  for (const std::string& file : source_files()) {
    if (file == "perf/cli/main.cc") continue;  // the program, which joins train and perf
    std::ifstream text(fs::path(WEFT_SOURCE_DIR) / file);
    for (std::string& line : backward(file, text)) all.push_back(std::move(line));
  }
  for (const std::string& line : all) ADD_FAILURE() << line;
}

TEST(Arrows, OneThatRunsBackIsNamed) {
  std::istringstream text("#pragma once\n#include \"coll/runtime/core.h\"\n");
  EXPECT_EQ(backward("coll/engine/engine.h", text),
            std::vector<std::string>{"coll/engine/engine.h:2: includes coll/runtime/core.h: "
                                     "coll/engine may not include coll/runtime"});
  EXPECT_EQ(forbidden("transport/tcp/tcp.cc", "coll/types.h"), "transport may not include coll");
  EXPECT_EQ(forbidden("train/trainer.cc", "perf/cli/table.h"), "train may not include perf");
  EXPECT_EQ(forbidden("coll/api/world.cc", "coll/runtime/core.h"), "");
  EXPECT_EQ(forbidden("coll/api/world.h", "coll/runtime/core.h"),
            "coll/api may not include coll/runtime");
  EXPECT_EQ(forbidden("coll/attic/old.h", "coll/types.h"), "coll/attic is in no row of kRooms");
}

TEST(Rooms, NoneIsCrowdedAndEachSaysWhatItIs) {
  std::map<std::string, std::size_t> files;
  for (const std::string& file : source_files()) ++files[file.substr(0, file.rfind('/'))];
  for (const auto& [room, count] : files) {
    EXPECT_LE(count, kMostFiles) << room << " has more files than a reader takes in at once";
    EXPECT_TRUE(fs::exists(fs::path(WEFT_SOURCE_DIR) / room / "README.md"))
        << room << " lacks a README.md that says what it is and what it does not know";
  }
}

}  // namespace
}  // namespace weft
