#include <stdio.h>
#include <weft/weft.h>

int main(void) {
  weft_world_t* world = NULL; /* a job of one, unless a launcher says otherwise */
  weft_comm_t* comm = NULL;
  float in = 1, out = 0;
  if (weft_world_from_environment(NULL, &world) || weft_world_comm(world, &comm) ||
      weft_all_reduce(comm, &in, &out, 1, WEFT_FLOAT32, WEFT_SUM, NULL))
    return fprintf(stderr, "%s\n", weft_last_error()), 1;
  printf("sum %g\n", out);
  weft_comm_free(comm);
  weft_world_free(world);
  return 0;
}
