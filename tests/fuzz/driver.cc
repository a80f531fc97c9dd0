// Runs a fuzz target without libFuzzer: the files of a corpus, then seeded mutations of them. The
// same arguments give the same inputs, on every machine.
//
//   frame_fuzz --corpus DIR --runs 20000 [--seed 1]
//   frame_fuzz --corpus DIR --only 1234     run one input again, by the number in a failure
//   frame_fuzz --corpus DIR --only 1234 --save FILE    write it to a file, for the corpus
//   frame_fuzz FILE ...                     run these files
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Present in programs with a sanitizer.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMaxBytes = 4096;
// An input that takes longer is a hang.
constexpr unsigned kDeadlineS = 60;

// The current input, for the report of a crash.
std::array<char, 512> current;

void report_current() {
  const ssize_t n = write(STDERR_FILENO, current.data(), strnlen(current.data(), current.size()));
  static_cast<void>(n);
}

void on_signal(int signal) {
  if (signal == SIGALRM) {
    constexpr std::string_view kHang = "driver: the input takes longer than 60 s\n";
    const ssize_t n = write(STDERR_FILENO, kHang.data(), kHang.size());
    static_cast<void>(n);
  }
  report_current();
  std::_Exit(1);
}

// splitmix64: the standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // A random number below n; 0 if n is 0.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }

 private:
  std::uint64_t state_;
};

// Overwrites the bytes at a random place with a limit value of an integer type.
void edge_number(Bytes& bytes, Random& random) {
  constexpr std::uint64_t kEdges[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0x8000,
                                      0xffff,
                                      0x10000,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x7fffffffffffffff,
                                      0x8000000000000000,
                                      ~std::uint64_t{0}};
  const std::uint64_t value = kEdges[random.below(std::size(kEdges))];
  const std::size_t width = std::size_t{1} << random.below(4);
  if (bytes.size() < width) return;
  const std::size_t at = random.below(bytes.size() - width + 1);
  const bool big_endian = random.below(2) == 1;
  for (std::size_t i = 0; i < width; ++i)
    bytes[at + (big_endian ? width - 1 - i : i)] = static_cast<std::uint8_t>(value >> (8 * i));
}

void mutate(Bytes& bytes, const std::vector<Bytes>& corpus, Random& random) {
  const auto place = [&] { return static_cast<std::ptrdiff_t>(random.below(bytes.size() + 1)); };
  std::ptrdiff_t from = place();
  std::ptrdiff_t to = place();
  if (from > to) std::swap(from, to);
  switch (random.below(8)) {
    case 0:
      if (!bytes.empty()) bytes[random.below(bytes.size())] ^= 1U << random.below(8);
      break;
    case 1:
      if (!bytes.empty())
        bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.next());
      break;
    case 2:
      edge_number(bytes, random);
      break;
    case 3:
      bytes.erase(bytes.begin() + from, bytes.begin() + to);
      break;
    case 4:
      bytes.resize(static_cast<std::size_t>(from));
      break;
    case 5: {  // duplicate a piece
      const Bytes piece(bytes.begin() + from, bytes.begin() + to);
      bytes.insert(bytes.begin() + place(), piece.begin(), piece.end());
      break;
    }
    case 6: {  // random bytes
      Bytes noise(1 + random.below(16));
      for (std::uint8_t& b : noise) b = static_cast<std::uint8_t>(random.next());
      bytes.insert(bytes.begin() + place(), noise.begin(), noise.end());
      break;
    }
    default: {  // the head of this input, the tail of another
      const Bytes& other = corpus[random.below(corpus.size())];
      const auto cut = static_cast<std::ptrdiff_t>(random.below(other.size() + 1));
      bytes.erase(bytes.begin() + from, bytes.end());
      bytes.insert(bytes.end(), other.begin() + cut, other.end());
    }
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
}

void run(const Bytes& bytes, const std::string& what) {
  std::snprintf(current.data(), current.size(), "driver: failed at input: %s\n", what.c_str());
  alarm(kDeadlineS);
  // A copy of the exact size, so that AddressSanitizer detects reads beyond its end.
  const std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), bytes.size());
  alarm(0);
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "driver: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

std::uint64_t number(std::string_view option, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    std::fprintf(stderr, "driver: %s needs a number, not '%s'\n", std::string(option).c_str(),
                 std::string(text).c_str());
    std::exit(2);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  std::string corpus_dir;
  std::string save;
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  std::uint64_t first = 0;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (!option.starts_with("--")) {
      files.emplace_back(option);
      continue;
    }
    const std::string_view value = i + 1 < argc ? argv[++i] : "";
    if (option == "--corpus") {
      corpus_dir = value;
    } else if (option == "--runs") {
      runs = number(option, value);
    } else if (option == "--seed") {
      seed = number(option, value);
    } else if (option == "--save") {
      save = value;
    } else if (option == "--only") {
      first = number(option, value);
      runs = first + 1;
    } else {
      std::fprintf(stderr,
                   "driver: unknown option %s; there are --corpus, --runs, --seed, "
                   "--only, --save\n",
                   argv[i - 1]);
      return 2;
    }
  }

  for (const int number : {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    // For other signals a sanitizer has the better report, and calls report_current().
    if (__sanitizer_set_death_callback == nullptr || number == SIGALRM || number == SIGABRT)
      std::signal(number, on_signal);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(report_current);

  if (std::filesystem::is_directory(corpus_dir)) {
    for (const auto& entry : std::filesystem::directory_iterator(corpus_dir))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  }
  std::vector<Bytes> corpus;
  for (const auto& file : files) {
    corpus.push_back(read_file(file));
    run(corpus.back(), file.string());
  }
  const std::size_t files_run = corpus.size();
  corpus.emplace_back();  // an empty input
  if (first == 0) run(corpus.back(), "empty");

  for (std::uint64_t i = first; i < runs; ++i) {
    Random random(seed * 0x100000001b3 + i);  // inputs are independent, so that --only finds it
    Bytes bytes = corpus[random.below(corpus.size())];
    for (std::size_t n = 1 + random.below(6); n > 0; --n) mutate(bytes, corpus, random);
    if (!save.empty()) {
      std::ofstream(save, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      continue;
    }
    run(bytes, "--seed " + std::to_string(seed) + " --only " + std::to_string(i));
  }
  std::printf("driver: %zu files and %llu mutations passed\n", files_run,
              static_cast<unsigned long long>(runs - first));
  return 0;
}
