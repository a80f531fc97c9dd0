#!/bin/sh
# Prints how far `auto` is off the best fixed algorithm, in virtual time, by hosts x ranks and
# collective, and each point where it is more than 5 % off. $1: the weft to run (./weft).
# HOSTS, RANKS (of a host), SIZES and COLLECTIVES choose a part of the grid. Algorithms that would be
# simulated for more than LONGEST seconds (60) are left out, as `weft sim --algo all` does; with 4,
# the whole takes some minutes.
set -eu
weft=${1:-./weft}

point() {
  bytes=$4
  case "$bytes:$1" in
    8:all_gather | 8:reduce_scatter | 8:all_to_all) bytes=$((4 * $2 * $3)) ;;  # the least
  esac
  "$weft" sim "$1" --ranks $(($2 * $3)) --hosts "$2" --rails "$3" --bytes "$bytes" --algo all \
    --longest-s "${LONGEST:-60}" \
    --machine h100 2>/dev/null |
    awk -v c="$1" -v h="$2" -v g="$3" -v b="$4" '
      table && NF == 0 { table = 0 }
      table { us[$1] = $2; if (best == "" || $2 + 0 < us[best] + 0) best = $1; n++ }
      /of_bound/ { table = 1 }
      /^auto takes/ { took = $3 }
      END {
        if (!(took in us)) { print "skip", c, h " x " g, b; exit }
        print "point", c, h "x" g, b, us[took] / us[best], took, us[took], best, us[best], n
      }'
}

for ranks in ${RANKS:-1 8}; do
  for hosts in ${HOSTS:-2 4 8 16 32 128}; do
    for c in ${COLLECTIVES:-all_reduce all_gather reduce_scatter broadcast all_to_all}; do
      for bytes in ${SIZES:-8 64K 1M 16M 64M 256M 1G}; do point $c "$hosts" "$ranks" $bytes; done
    done
  done
done | awk '
  $1 == "skip" { skipped++; next }
  {
    points++; key = $3 " " $2
    if (!(key in worst)) order[++keys] = key
    if ($5 > worst[key]) { worst[key] = $5; where[key] = $4 ", " $6 " for " $8 }
    if ($5 > 1.05) bad[++nbad] = "| " $2 " | " $3 " | " $4 " | " $6 " | " $7 " | " $8 " | " $9 " |"
  }
  END {
    print "| hosts x ranks | collective | worst, of the best | where |"; print "|---|---|---|---|"
    for (i = 1; i <= keys; i++) {
      split(order[i], k, " "); w = worst[order[i]]
      printf "| %s | %s | %.3f | %s |\n", k[1], k[2], w, (w > 1.0005 ? where[order[i]] : "-")
    }
    printf "\n%d points, %d of them more than 5 %% off, %d not simulated\n", points, nbad, skipped
    if (nbad) print "\n| collective | hosts x ranks | bytes | auto | us | best | us |\n|---|---|---|---|---|---|---|"
    for (i = 1; i <= nbad; i++) print bad[i]
  }'
