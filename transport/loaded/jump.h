// Defines a function as a jump to an address that is filled in later: two instructions, as in a
// procedure linkage table, so that any arguments pass through.
#pragma once

#if defined(__x86_64__)
#define WEFT_JUMP_CODE(name) "  jmpq *weft_jump_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define WEFT_JUMP_CODE(name)     \
  "  adrp x16, weft_jump_" #name \
  "\n"                           \
  "  ldr x16, [x16, :lo12:weft_jump_" #name "]\n  br x16\n"
#else
#error "transport/loaded/jump.h: write the jump of this processor"
#endif

#if defined(__CET__)
#define WEFT_JUMP_BEGIN "  endbr64\n"
#else
#define WEFT_JUMP_BEGIN ""
#endif

#define WEFT_JUMP(name)                                                                 \
  extern "C" {                                                                          \
  [[gnu::visibility("hidden")]] void* weft_jump_##name = nullptr;                       \
  }                                                                                     \
  asm(".pushsection .text\n  .weak " #name "\n  .hidden " #name "\n  .type " #name      \
      ", @function\n" #name ":\n" WEFT_JUMP_BEGIN WEFT_JUMP_CODE(name) "  .size " #name \
                                                                       ", .-" #name     \
                                                                       "\n  .popsection\n");
#define WEFT_JUMP_ENTRY(name) {#name, &weft_jump_##name},
