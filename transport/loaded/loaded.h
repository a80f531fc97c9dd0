// Libraries that weft uses where the machine has them. Each is loaded when first asked for.
//
// The functions of a library are defined in this room by their own names, each as a jump to where
// the loaded one is. Nobody may call one before its library was found. The definitions are weak: a
// test that plays a library defines the functions itself.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft {

class LoadedLibrary {
 public:
  // A function, and where its address goes.
  struct Function {
    const char* name;
    void** address;
  };
  // files: the names to try, the first that is there counts.
  LoadedLibrary(const char* title, std::span<const char* const> files,
                std::span<const Function> functions);
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  explicit operator bool() const { return why_not_.empty(); }
  const char* title() const { return title_; }
  // The file that was loaded; empty: none.
  const std::string& file() const { return file_; }
  // Why it is not there, as the dynamic linker says it; empty: it is there.
  const std::string& why_not() const { return why_not_; }

 private:
  const char* const title_;
  std::string file_, why_not_;
};

// Each loads its library on the first call. Thread-safe. Defined only where the build has the
// library's headers (WEFT_HAVE_VERBS, WEFT_HAVE_UCX, WEFT_HAVE_PMIX).
const LoadedLibrary& verbs_library();
const LoadedLibrary& ucx_library();
const LoadedLibrary& pmix_library();

// What people are told of a library.
struct LibraryState {
  std::string title, file;
  std::string why_not;  // also: this build was made without; empty: it is there
};
std::vector<LibraryState> libraries();

}  // namespace weft
