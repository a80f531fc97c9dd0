// WEFT_WIDE compiles a function twice, for AVX2 and for other CPUs; the loader selects one (ifunc).
// Neither uses FMA, but sums have different numbers of lanes, so bits may differ between CPUs.
// Sanitizers do not support ifuncs.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE
#endif
