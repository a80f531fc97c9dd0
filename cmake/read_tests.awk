# Reads CTest's JUnit report; writes a line per test: outcome TAB name TAB reason, where outcome is
# passed, failed or skipped. A program that is one CTest entry ("// ctest: whole") is counted by
# the cases of its own report, which GoogleTest wrote to <whole>/<name>.xml. The end of what a
# failed test printed is appended to the file <failures>.

function attribute(line, key) {
  if (!match(line, " " key "=\"[^\"]*\"")) return ""
  return plain(substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 4))
}

function plain(text) {
  gsub(/&lt;/, "<", text)
  gsub(/&gt;/, ">", text)
  gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text)
  gsub(/&#x0A;.*/, "", text)
  gsub(/&amp;/, "\\&", text)
  return text
}

function put(outcome, name, reason) {
  printf "%s\t%s: %s\t%s\n", outcome, preset, name, reason
}

# The cases of GoogleTest's report; returns the number that failed, or -1 without a report.
function put_cases(file, name,    line, title, outcome, reason, failures, any) {
  while ((getline line < file) > 0) {
    any = 1
    if (line ~ /<testcase /) {
      title = name " " attribute(line, "classname") "." attribute(line, "name")
      outcome = "passed"
      reason = ""
      if (line ~ / status="notrun"/) {
        outcome = "skipped"
        reason = "disabled"
      }
    } else if (line ~ /<failure /) {
      outcome = "failed"
    } else if (line ~ /<skipped /) {
      outcome = "skipped"
      sub(/message="[^"&]*&#x0A;/, "message=\"", line)  # file:line
      reason = attribute(line, "message")
    }
    if (line ~ /<testcase .*\/>$/ || line ~ /<\/testcase>/) {
      if (outcome == "failed") ++failures
      put(outcome, title, reason)
    }
  }
  close(file)
  return any ? failures + 0 : -1
}

# What a test that went well says of itself tells nothing of one that failed.
function keep(line) {
  if (line ~ /^\[ (RUN     |      OK|-------)/ || line ~ /^\[[-=]+\]/) return
  printed[lines++ % 40] = plain(line)
}

function put_failure(    i) {
  printf "\n---- %s: %s\n", preset, name >>failures
  for (i = lines > 40 ? lines - 40 : 0; i < lines; ++i) print printed[i % 40] >>failures
}

/^\t<testcase / {
  lines = printing = 0
  name = attribute($0, "name")
  status = attribute($0, "status")
  reason = skipped = ""
  take_next = 0
}
/^\t\t<skipped / { skipped = attribute($0, "message") }
status == "fail" && sub(/^\t\t<system-out>/, "") { printing = 1 }
printing {
  printing = !sub(/<\/system-out>$/, "")
  keep($0)
}
take_next { reason = plain($0); take_next = 0 }
reason == "" && /: Skipped$/ { take_next = 1 }  # GTEST_SKIP: its text is on the next line
match($0, /missing capability: .*/) {
  if (reason !~ /^missing/) reason = plain(substr($0, RSTART))
  sub(/<\/system-out>$/, "", reason)
}
/^\t<\/testcase>/ {
  if (status == "fail") put_failure()
  failed_cases = put_cases(whole "/" name ".xml", name)
  if (failed_cases >= 0) {
    # Such as a leak, found after the last case.
    if (status == "fail" && failed_cases == 0) put("failed", name, "")
  } else if (status == "run") {
    put("passed", name, "")
  } else if (status == "disabled") {
    put("skipped", name, "disabled")
  } else if (status == "notrun" && skipped ~ /^SKIP_/) {
    put("skipped", name, reason == "" ? "no reason given" : reason)
  } else {
    put("failed", name, skipped)
  }
}
