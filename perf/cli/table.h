// Formats text for people: aligned columns, colours on a terminal, a progress line that is erased.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/text.h"

namespace weft {

struct Column {
  std::string title;
  std::string unit;  // second header line; may be empty
  int width = 0;     // minimum width; a longer cell shifts the rest of its row
  bool left = false;
};

// A table whose rows are printed as they are measured, so its widths are fixed in advance.
class Table {
 public:
  // `gap`: blanks between columns. Row and header begin with gap - 1 of them.
  explicit Table(std::vector<Column> columns, int gap = 2);
  std::string header() const;  // one or two lines that start with '#'
  std::string row(const std::vector<std::string>& cells) const;
  bool has(std::string_view title) const;

 private:
  std::string line(const std::vector<std::string>& cells) const;
  std::vector<Column> columns_;
  int gap_;
};

// Formats a complete table: every column is as wide as its widest cell, two spaces separate
// columns, and no line ends in blanks. A last cell that would exceed kColumns is wrapped.
std::string align(const std::vector<std::vector<std::string>>& rows);

std::string format_us(double us);      // "0.52", "17.3", "8124"
std::string format_GBps(double GBps);  // "0.047", "12.31"

// Returns whether standard output is a terminal that obeys escape sequences: TERM is set and not
// "dumb", and the terminal is not the pseudo-terminal of an mpirun.
bool obeys_escapes();
// Returns whether text on standard output may have colours: obeys_escapes(), and NO_COLOR is unset
// or empty (no-color.org).
bool colours();

// Colours the text if colours() is true.
enum class Paint { kGood, kWarn, kBad, kDim, kBold };
std::string paint(Paint paint, std::string_view text);

// Overwrites one line on stderr. Shows nothing unless stdout and stderr are terminals and
// obeys_escapes() is true.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::string_view text);
  void clear();

 private:
  bool on_, shown_ = false;
};

}  // namespace weft
