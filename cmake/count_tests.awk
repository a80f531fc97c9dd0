# Reads the lines of read_tests.awk; says how many tests were skipped for want of what, shows the
# file <failures>, names what failed, and ends with the count. Exits with 1 when a test failed, or
# when there was none.

BEGIN { FS = "\t" }
{ ++count[$1] }
$1 == "failed" { failed = failed "failed   " $2 ($3 == "" ? "" : "  (" $3 ")") "\n" }
$1 == "skipped" {
  if (!skipped[$3]++) {
    reasons[++kinds] = $3
    first[$3] = $2
  }
}
END {
  print ""
  for (k = 1; k <= kinds; ++k) {
    n = skipped[reasons[k]]
    printf "skipped %4d: %s  (%s%s)\n", n, reasons[k], first[reasons[k]],
      n == 1 ? "" : " and " n - 1 " more"
  }
  if (kinds) printf "each skip by name: %s\n", FILENAME
  while ((getline line < failures) > 0) print line
  printf "%s%d passed, %d failed, %d skipped\n", failed, count["passed"], count["failed"],
    count["skipped"]
  exit count["failed"] > 0 || NR == 0
}
