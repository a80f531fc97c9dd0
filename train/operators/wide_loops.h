// WEFT_WIDE compiles a function twice, for AVX2 and for all other processors; the loader picks one.
// Neither fuses a product with a sum, but sums have different lanes, so bits may differ between
// processors. Sanitizers do not work with the loader's choice.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE
#endif
