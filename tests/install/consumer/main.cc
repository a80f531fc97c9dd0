#include <cstdio>
#include <weft/coll/types.h>

#include "topo/status.h"

int main() {
  weft::Status().check();
  std::printf("%s %d\n", weft::name(weft::RedOp::kSum), 1);
}
