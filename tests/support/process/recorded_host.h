// Recorded /sys trees of real hosts, in the folder WEFT_RECORDED; by default it lies beside the
// source tree.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/process/temporary_folder.h"
#include "topo/base/environment.h"

namespace weft::testing {

inline std::string recorded_folder() {
  const std::string folder = environment("WEFT_RECORDED");
  return folder.empty() ? WEFT_SOURCE_DIR "/../shared/recorded" : folder;
}

// A host name as part of a test name.
inline std::string case_name(std::string host) {
  std::erase(host, '-');
  return host;
}

// A host's /sys in a temporary folder, with links to the recorded files. In recordings stored
// without symbolic links, a one-line file without a newline ("../../devices/pci0000:00/...")
// replaces each link.
class RecordedHost {
 public:
  explicit RecordedHost(const std::string& name) {
    const std::filesystem::path from = std::filesystem::absolute(recorded_folder()) / name;
    for (const std::filesystem::path& root : {from / "sys", from})
      if (!there_ && std::filesystem::is_directory(root / "class")) {
        there_ = true;
        grow(root, tree_.path());
      }
  }
  bool there() const { return there_; }
  const std::string& sys() const { return tree_.path(); }

 private:
  static void grow(const std::filesystem::path& from, const std::filesystem::path& to) {
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      const std::filesystem::path target = to / entry.path().filename();
      if (entry.is_symlink()) {
        std::filesystem::copy_symlink(entry.path(), target);
      } else if (entry.is_directory()) {
        const std::string name = entry.path().filename();
        if (name == "power" || name == "cpu") continue;  // large, and not used by tests
        std::filesystem::create_directory(target);
        grow(entry.path(), target);
      } else {
        std::string text;
        if (entry.file_size() < 200 && entry.file_size() > 8) {
          std::ifstream file(entry.path());
          std::getline(file, text);
          if (!file.eof()) text.clear();
        }
        std::filesystem::create_symlink(text.starts_with("../") ? text : entry.path().string(),
                                        target);
      }
    }
  }
  const TemporaryFolder tree_;
  bool there_ = false;
};

}  // namespace weft::testing
