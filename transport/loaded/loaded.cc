// Loads libraries with dlopen and reports which are available.
#include "transport/loaded/loaded.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace weft {

LoadedLibrary::LoadedLibrary(const char* title, std::span<const char* const> files,
                             std::span<const Function> functions)
    : title_(title) {
  void* library = nullptr;
  for (const char* file : files) {
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) {
      file_ = file;
      break;
    }
    if (why_not_.empty()) why_not_ = dlerror();
  }
  if (!library) return;
  why_not_.clear();
  for (const Function& f : functions) {
    *f.address = dlsym(library, f.name);
    if (!*f.address && why_not_.empty())
      why_not_ = fmt::format("{} has no {}: it is too old", file_, f.name);
  }
}

namespace {

[[maybe_unused]] LibraryState state(const LoadedLibrary& library) {
  return {library.title(), library ? library.file() : std::string(), library.why_not()};
}

[[maybe_unused]] LibraryState left_out(const char* title) {
  return {title, {}, "left out of this build"};
}

}  // namespace

std::vector<LibraryState> libraries() {
  return {
#ifdef WEFT_HAVE_VERBS
      state(verbs_library()),
#else
      left_out("verbs"),
#endif
#ifdef WEFT_HAVE_UCX
      state(ucx_library()),
#else
      left_out("UCX"),
#endif
#ifdef WEFT_HAVE_PMIX
      state(pmix_library()),
#else
      left_out("PMIx"),
#endif
#ifdef WEFT_HAVE_CUDA
      {"CUDA", "in this build", {}},
#else
      left_out("CUDA"),
#endif
  };
}

}  // namespace weft
