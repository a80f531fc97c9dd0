// Writes a report to a new file next to the old one, then renames it to the old name. The report is
// an opaque text.
#include "coll/jobs/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "coll/api/communicator.h"
#include "coll/runtime/internals.h"
#include "transport/control/hmac.h"
#include "transport/launch/failures.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string beside(const std::string& path) { return path + '.' + hex(random_bytes(8)); }

std::string refusal(std::string_view option, const std::string& path, const std::string& why) {
  return fmt::format("{} {}: cannot be written: {}", option, path, why);
}

std::error_code write_file(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? std::error_code() : std::error_code(errno ? errno : EIO, std::generic_category());
}

// Writes a new file and gives it the name and the permissions of the old file, if there is one.
std::error_code replace_file(const std::string& path, const fs::file_status& old,
                             std::string_view text) {
  std::error_code error, ignored;
  std::string target = path;
  if (fs::exists(old)) target = fs::canonical(path, error);  // follows a symbolic link
  if (error) return error;
  const std::string fresh = beside(target);
  error = write_file(fresh, text);
  if (!error && fs::exists(old)) fs::permissions(fresh, old.permissions(), ignored);
  if (!error) fs::rename(fresh, target, error);
  if (error) fs::remove(fresh, ignored);
  return error;
}

}  // namespace

CLI::Option* add_json_option(CLI::App& command, std::string& file, std::string_view schema) {
  return command
      .add_option("--json", file,
                  fmt::format("write a report ({}) to FILE; - or no FILE: to standard output, "
                              "without the text",
                              schema))
      ->type_name("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
}

std::string why_not_writable(const std::string& path, std::string_view option) {
  if (path.empty() || path == "-") return "";
  std::error_code ignored;
  const bool there = fs::exists(path, ignored);
  errno = 0;
  if (there && !std::ofstream(path, std::ios::app))
    return refusal(option, path, std::strerror(errno));
  if (there && !fs::is_regular_file(path, ignored)) return "";
  // A report is first written to a new file, which needs disk space.
  const std::string probe = beside(path);
  const std::error_code error = write_file(probe, "\n");
  fs::remove(probe, ignored);
  const bool full =
      // After other errors, an existing file is written in place.
      error == std::errc::no_space_on_device || error.value() == EDQUOT;
  return error && (!there || full) ? refusal(option, path, error.message()) : "";
}

void check_report(const std::string& path, std::string_view option) {
  if (const std::string why = why_not_writable(path, option); !why.empty()) throw Error(why);
}

void check_report(World& world, const std::string& path, std::string_view option) {
  const auto why =
      job_of(world).all_gather(world.rank() == 0 ? why_not_writable(path, option) : "");
  if (!why[0].empty()) throw UsageError(why[0]);
}

void write_report(const std::string& path, std::string_view text, std::string_view option) {
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  std::error_code error;
  const fs::file_status old = fs::status(path, error);
  if (!fs::exists(old) || fs::is_regular_file(old)) {
    error = replace_file(path, old, text);
    if (!error) return;
  }
  // A file that cannot be replaced (it is a mount point, or its folder is read-only) is written in
  // place, but not if the disk is full, since then the old report would be lost, too.
  if (error != std::errc::no_space_on_device) error = write_file(path, text);
  if (error) throw UsageError(refusal(option, path, error.message()));
}

}  // namespace weft
