// The functions of PMIx that weft calls.
#include "transport/loaded/jump.h"
#include "transport/loaded/loaded.h"

// clang-format off
#define WEFT_PMIX(F)                                                                             \
  F(PMIx_Commit) F(PMIx_Data_type_string) F(PMIx_Error_string) F(PMIx_Fence_nb) F(PMIx_Finalize) \
  F(PMIx_Get) F(PMIx_Info_load) F(PMIx_Init) F(PMIx_Put) F(PMIx_Value_destruct) F(PMIx_Value_load)
// clang-format on
WEFT_PMIX(WEFT_JUMP)

namespace weft {

const LoadedLibrary& pmix_library() {
  // Debian has it in a separate folder.
  static constexpr const char* kFiles[] = {"libpmix.so.2", WEFT_PMIX_FOLDER "/libpmix.so.2"};
  static const LoadedLibrary::Function functions[] = {WEFT_PMIX(WEFT_JUMP_ENTRY)};
  static const LoadedLibrary library("PMIx", kFiles, functions);
  return library;
}

}  // namespace weft
