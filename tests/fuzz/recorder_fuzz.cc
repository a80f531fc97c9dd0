// The memory of a flight recorder after a crash or of another version (coll/observe/recorder.h): a
// book with any bytes is rejected, or read to the end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "coll/observe/diagnosis.h"
#include "coll/observe/recorder.h"
#include "topo/base/status.h"

// runs: 4000
// The first byte sets the number of pages; half of the inputs get a valid head, so that their pages
// are read. The rest is repeated to fill the book.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace book = weft::book;
  if (size < 2) return 0;
  const std::size_t pages = data[0] % 3u;
  const bool head = data[0] & 0x80u;
  ++data;
  --size;
  weft::SharedRegion region =
      weft::SharedRegion::create(book::kHeadBytes + pages * sizeof(book::Page) + data[0] % 2u,
                                 "weft-fuzz", weft::SharedRegion::Others::kWrite);
  for (std::size_t at = 0; at < region.size(); at += size)
    std::memcpy(region.data() + at, data, std::min(size, region.size() - at));
  if (head) {
    auto* h = reinterpret_cast<book::Head*>(region.data());
    h->magic.store(book::kMagic);
    h->page_bytes = sizeof(book::Page);
    h->pages = static_cast<int>(pages);
  }
  try {
    const weft::BookView view(std::move(region));
    const weft::Evidence evidence{view.size(), view.read_all(), {}};
    for (const weft::RankSnapshot& t : evidence.ranks)
      if (weft::decode_snapshot(weft::encode(t)).rank != t.rank) std::abort();
    (void)weft::diagnose(evidence);
  } catch (const weft::Error&) {
  }
  return 0;
}
