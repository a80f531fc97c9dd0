#!/bin/sh
# Prints what failures in the middle of an all_reduce cost at the size of a cluster, in virtual time,
# and what is said. $1: the weft to run (./weft). Takes a few minutes.
set -eu
weft=${1:-./weft}

# hosts, bytes, what, flags
row() {
  hosts=$1 bytes=$2 what=$3
  shift 3
  "$weft" sim all_reduce --ranks $((hosts * 8)) --hosts "$hosts" --rails 8 --bytes "$bytes" \
    --machine h100 "$@" 2>&1 |
    awk -v h="$hosts" -v b="$bytes" -v w="$what" '
      /^weft: / { sub(/^weft: /, ""); printf "| %s x 8 | %s | %s | - | %s |\n", h, b, w, $0; exit }
      after { us = $2; sub(/^.*  /, ""); printf "| %s x 8 | %s | %s | %s | %s |\n", h, b, w, us, $0; exit }
      /of_bound/ { after = 1 }'
}

echo '| hosts x ranks | bytes | what happens | us | what is said, or busiest |'
echo '|---|---|---|---|---|'
for job in "32 256M 700" "128 64M 200"; do
  set -- $job
  row "$1" "$2" nothing
  row "$1" "$2" "rail 3 at a quarter, from $3 us on" --slow-rail "3:0.25@$3"
  row "$1" "$2" "host 5's link on rail 3 dies at $3 us" --cut "5:3@$3"
  row "$1" "$2" "host 5 at half its speed" --slow-host 5:0.5
  row "$1" "$2" "ranks start up to 100 us late" --skew-us 100
done
