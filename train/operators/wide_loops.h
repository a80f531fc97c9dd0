// WEFT_WIDE: loops are compiled twice, for processors with wide vectors and for all others; the
// loader picks. No product and sum are fused, but sums have other lanes: bits may differ between
// processors. Sanitizers do not stand the picking.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE
#endif
