// Optional libraries, loaded with dlopen on first use.
//
// This folder defines a library's functions under their own names, each as a jump to the loaded
// function. These functions must not be called before the library was loaded. The definitions are
// weak, so that a test that fakes a library can define the functions itself.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft {

class LoadedLibrary {
 public:
  // A function, and where to store its address.
  struct Function {
    const char* name;
    void** address;
  };
  // files: the names to try in order.
  LoadedLibrary(const char* title, std::span<const char* const> files,
                std::span<const Function> functions);
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  explicit operator bool() const { return why_not_.empty(); }
  const char* title() const { return title_; }
  // Returns the name of the loaded file; empty if no file is loaded.
  const std::string& file() const { return file_; }
  // Returns why the library is unavailable, from the dynamic linker; empty if the library is
  // available.
  const std::string& why_not() const { return why_not_; }

 private:
  const char* const title_;
  std::string file_, why_not_;
};

// Each function loads its library on the first call. Thread-safe. Defined only if the build has the
// library's headers (WEFT_HAVE_VERBS, WEFT_HAVE_UCX, WEFT_HAVE_PMIX).
const LoadedLibrary& verbs_library();
const LoadedLibrary& ucx_library();
const LoadedLibrary& pmix_library();

// A library's availability, for display.
struct LibraryState {
  std::string title, file;
  std::string why_not;  // includes "left out of this build"; empty: available
};
std::vector<LibraryState> libraries();

}  // namespace weft
