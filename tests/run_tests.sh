# shellcheck shell=bash disable=SC2154,SC2034
# The tests, for `./weft test`: `weft` sources this file, which uses its functions.
# tests/properties.cmake selects the tests, and those that the sanitizers run.

# PyTorch, for tests/torch: in a separate environment, outside of the tree. A failure here skips a
# test.
set_up_torch() {
  local folder=${XDG_CACHE_HOME:-$HOME/.cache}/weft/torch log=$root/build/torch.log
  [[ ! -x $folder/bin/python ]] || ! "$folder/bin/python" -c 'import torch' 2>/dev/null || return 0
  say "installing PyTorch in $folder (log: $log)"
  local few=(filelock typing-extensions sympy networkx jinja2 fsspec numpy expecttest hypothesis)
  # Only the parts of PyTorch that the CPU needs; the libraries of a CUDA toolkit are taken from
  # the machine.
  if ! {
    python3 -m venv "$folder" &&
      "$folder/bin/pip" install --no-deps torch==2.15.0 nvidia-cufile nvidia-cusparselt-cu13==0.8.1 \
        nvidia-nvshmem-cu13==3.7.2 nvidia-nccl-cu13==2.30.7 &&
      "$folder/bin/pip" install "${few[@]}" 'setuptools>=77' wheel ninja &&
      { "$folder/bin/python" -c 'import torch' || "$folder/bin/pip" install torch==2.15.0; }
  } </dev/null >"$log" 2>&1; then
    say "cannot install PyTorch; see $log"
  fi
}

# run_ctest PRESET ARGUMENT...: appends to $results a line per test: outcome, name, reason; and to
# $failures what the failed ones printed
run_ctest() {
  local folder=$root/build/$1 preset=$1
  shift
  rm -rf "$folder/whole" "$folder/tests.xml"
  # The level counts quarters of a core; see tests/properties.cmake.
  ctest --test-dir "$folder" --output-on-failure -j $((4 * cores)) \
    --test-output-size-passed 65536 --output-junit "$folder/tests.xml" "$@" 8>&- || status=1
  [[ ! -e $folder/tests.xml ]] ||
    awk -v preset="$preset" -v whole="$folder/whole" -v failures="$failures" \
      -f "$root/cmake/read_tests.awk" "$folder/tests.xml" >>"$results"
}

# build_sanitized TARGET: the sanitizers' programs, while the release build's tests mostly wait
build_sanitized() {
  local preset
  renice -n 19 -p $BASHPID >/dev/null || true
  for preset in dev tsan; do
    build "$preset" "$1"
    : >"$root/build/.built_$preset"
  done
}

# part NAME WHAT: one line with the seconds since the last part ended
part() {
  say "$1: $2 in $((SECONDS - part_began)) s"
  part_began=$SECONDS
}

# lock_tests: two runs at a time would write and empty the same reports
lock_tests() {
  mkdir -p "$root/build" 2>/dev/null || true
  [[ -w $root/build ]] || die "cannot write to $root/build: run as its owner"
  exec 8>"$root/build/.tests_lock"
  if ! flock -n 8; then
    say "waiting for another ./weft test that runs here"
    flock -w 7200 8 || die "the other ./weft test has been running for two hours: stop it first"
  fi
}

# quick_folders FOLDER: the folders with a program of fast tests that is newer than the last good run of
# them, as a regular expression: those that a change touched, and those that depend on them
quick_folders() {
  local name program
  while read -r name program; do
    [[ $1/.weft_quick_passed -nt $1/tests/$program ]] || echo "$name"
  done <"$1/tests/quick.txt" | sort -u | paste -sd '|'
}

# run_quick CTEST-ARGUMENT...
run_quick() {
  local folder=$root/build/$main_preset folders
  build "$main_preset" weft_quick -o -path ./tests/bench -o -path ./docs 8>&-
  part "$main_preset" built
  folders=$(quick_folders "$folder")
  if [[ -z $folders ]]; then
    say "nothing has changed since the fast tests passed; ./weft test runs all"
    exit 0
  fi
  : >"$folder/.weft_quick_passed.new"
  run_ctest "$main_preset" --no-tests=error -L '^fast$' -R "^($folders)/" "$@"
  part "$main_preset" tested
  awk -v failures="$failures" -f "$root/cmake/count_tests.awk" "$results" || status=1
  ((status || $#)) || mv -- "$folder/.weft_quick_passed.new" "$folder/.weft_quick_passed"
  exit "$status"
}

run_tests() {
  local arg sanitized='' tier='' torch='' quick='' arguments=() status=0 preset builder
  local part_began=$SECONDS results=$root/build/tests.tsv failures=$root/build/failures.txt
  for arg in "$@"; do
    case $arg in
      --sanitize) sanitized=weft_sanitized tier='^short$' ;;
      --all) sanitized=weft_sanitized_long tier='^(short|long)$' ;;
      --torch) torch=yes ;;
      --quick) quick=yes ;;
      *) arguments+=("$arg") ;;
    esac
  done
  [[ -z $quick || -z $sanitized$torch ]] ||
    die "--quick is of the fast tests of $main_preset: leave out --sanitize, --all and --torch, or --quick"
  lock_tests
  mapfile -t classes < <(awk '!/^#/ && $1 != "build" && !seen[$1]++ { print $1 }' "$root/cmake/packages.txt")
  : >"$results"
  : >"$failures"
  [[ -z $quick ]] || run_quick ${arguments[@]+"${arguments[@]}"}
  [[ -z $torch ]] || set_up_torch 8>&-
  build "$main_preset" all 8>&-
  part "$main_preset" built
  if [[ -n $sanitized ]] && ! command -v clang++ >/dev/null; then
    printf 'skipped\t%s\t%s\n' dev clang++ tsan clang++ >>"$results"
    sanitized=''
  fi
  if [[ -n $sanitized ]]; then
    rm -f "$root"/build/.built_*
    set -m  # a process group of its own, which ends with this script
    build_sanitized "$sanitized" 8>&- &
    builder=$!
    set +m
    # shellcheck disable=SC2064
    trap "kill -- -$builder 2>/dev/null || true" EXIT
  fi
  run_ctest "$main_preset" --no-tests=error ${arguments[@]+"${arguments[@]}"}
  part "$main_preset" tested
  if [[ -n $sanitized ]]; then
    for preset in dev tsan; do
      while [[ ! -e $root/build/.built_$preset ]] && kill -0 "$builder" 2>/dev/null; do sleep 1; done
      [[ -e $root/build/.built_$preset ]] || die "the build of $preset has failed; see above"
      part "$preset" "waited for the build"
      run_ctest "$preset" --no-tests=ignore -L "$tier" ${arguments[@]+"${arguments[@]}"}
      part "$preset" tested
    done
  fi
  awk -v failures="$failures" -f "$root/cmake/count_tests.awk" "$results" || status=1
  exit "$status"
}
