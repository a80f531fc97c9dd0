#include <cstdio>
#include <weft/coll/api/communicator.h>

int main() {
  auto world = weft::World::from_environment();  // a job of one, unless a launcher says otherwise
  const float in = 1;
  float out = 0;
  world->world().all_reduce(&in, &out, 1, weft::DType::kFloat32, weft::RedOp::kSum).check();
  std::printf("sum %g\n", out);
}
