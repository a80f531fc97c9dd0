# Reads the lines of read_tests.awk; names what failed and what was skipped, and ends with the
# count. Exits with 1 when a test failed, or when there was none.

BEGIN { FS = "\t" }
{ ++count[$1] }
$1 == "failed" { failed = failed "failed   " $2 ($3 == "" ? "" : "  (" $3 ")") "\n" }
$1 == "skipped" { skipped = skipped "skipped  " $2 "  (" $3 ")\n" }
END {
  printf "\n%s%s%d passed, %d failed, %d skipped\n", skipped, failed, count["passed"],
    count["failed"], count["skipped"]
  exit count["failed"] > 0 || NR == 0
}
