#!/bin/sh
# Prints the table of docs/performance.md: what the engine reaches at the size of a cluster, in
# virtual time. $1: the weft to run (./weft). Takes a minute or two.
set -eu
weft=${1:-./weft}

# collective, hosts, ranks of a host, bytes
row() {
  "$weft" sim "$1" --ranks $(($2 * $3)) --hosts "$2" --rails "$3" --bytes "$4" \
    --machine h100 |
    awk -v c="$1" -v h="$2" -v g="$3" -v b="$4" '
      after { printf "| %s | %s x %s | %s | %s | %s | %s |\n", c, h, g, b, $1, $2, $4; exit }
      /of_bound/ { after = 1 }'
}

echo '| collective | hosts x ranks | bytes | auto takes | us | of_bound |'
echo '|---|---|---|---|---|---|'
for hosts in 4 8 12 32; do
  for bytes in 1G 64M 16M; do row all_reduce $hosts 8 $bytes; done
done
for hosts in 128 1024; do
  for bytes in 1G 64M; do row all_reduce $hosts 8 $bytes; done
done
for collective in all_gather reduce_scatter all_to_all; do row $collective 32 8 1G; done
row all_reduce 32 1 256M
for hosts in 65 127; do row all_reduce $hosts 8 256M; done
for collective in broadcast reduce gather scatter all_gather reduce_scatter all_to_all; do
  for bytes in 64M 1M; do row $collective 32 8 $bytes; done
done
