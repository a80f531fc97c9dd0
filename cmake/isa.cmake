# coll/engine/*_isa.cc, the kernels of reductions and of codecs, are compiled once for each
# instruction set, with WEFT_ISA = base, avx2 or avx512 to name its functions by; the processor is
# asked at run time.
# WEFT_X86_ISAS=1 tells the rest of weft_coll that all three are there.
#
# A product and a sum must not become one operation that rounds once on some processors only.
# Whatever those files do not inline must have internal linkage: the linker keeps one copy of an
# inline function, and a copy made for avx512 would then run on processors without it.

set(weft_kernels ${PROJECT_SOURCE_DIR}/coll/engine/kernels_isa.cc
  ${PROJECT_SOURCE_DIR}/coll/engine/codec_isa.cc)
file(GLOB weft_has_kernels CONFIGURE_DEPENDS ${weft_kernels})
if(weft_has_kernels)
  function(weft_isa isa)
    add_library(weft_kernels_${isa} OBJECT ${weft_kernels})
    target_compile_definitions(weft_kernels_${isa} PRIVATE WEFT_ISA=${isa})
    target_compile_options(weft_kernels_${isa} PRIVATE -O3 -ffp-contract=off ${ARGN})
    target_link_libraries(weft_kernels_${isa} PRIVATE weft_transport)
    target_sources(weft_coll PRIVATE $<TARGET_OBJECTS:weft_kernels_${isa}>)
  endfunction()
  weft_isa(base)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    weft_isa(avx2 -mavx2 -mfma -mf16c)
    weft_isa(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
    target_compile_definitions(weft_coll PRIVATE WEFT_X86_ISAS=1)
  endif()
endif()
