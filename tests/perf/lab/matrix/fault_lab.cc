// The command lines of both labs.
#include "perf/lab/matrix/fault_lab.h"

#include <fmt/core.h>

#include <algorithm>

namespace weft {
namespace {

// The arguments of the script, the same in both labs: KIND PLACE STRENGTH.
Command words_of_fault(const LabFault& fault, std::string_view kind) {
  if (kind == "flip") return {};
  const std::string strength = fault.peer.empty() ? fault.strength : fault.peer;
  return {std::string(kind), place_word(fault), strength};
}

class Netlab final : public FaultLab {
 public:
  Netlab(MatrixLab lab, std::string script, std::string weft, std::string name)
      : lab_(std::move(lab)),
        script_(std::move(script)),
        weft_(std::move(weft)),
        name_(std::move(name)) {}

  const MatrixLab& shape() const override { return lab_; }
  Command inject(const LabFault& fault) const override {
    const Command words = words_of_fault(fault, find_fault_row(fault.kind)->netlab);
    if (words.empty()) return {};
    Command command = {script_, "fault", "--lab", name_};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  Command heal() const override { return {script_, "heal", "--lab", name_}; }
  Command ranks(const Command& weft) const override {
    Command command = {weft_, "lab", "netlab", "--use", name_, "--", "weft"};
    command.insert(command.end(), weft.begin(), weft.end());
    return command;
  }

 private:
  MatrixLab lab_;
  std::string script_, weft_, name_;
};

class Softroce final : public FaultLab {
 public:
  Softroce(MatrixLab lab, std::string weft) : lab_(std::move(lab)), weft_(std::move(weft)) {}

  const MatrixLab& shape() const override { return lab_; }
  Command inject(const LabFault& fault) const override {
    Command words = words_of_fault(fault, find_fault_row(fault.kind)->softroce);
    if (words.empty()) return {};
    // Without a direction, the guest loses only packets that a port sends.
    if (fault.kind == "loss" && words[1].find(':') == std::string::npos) words[1] += ":both";
    Command command = {"softroce"};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  Command heal() const override { return {"softroce", "heal"}; }
  Command ranks(const Command& weft) const override {
    Command command = {weft_,
                       "lab",
                       "softroce",
                       "--hosts",
                       std::to_string(lab_.hosts.size()),
                       "--rails",
                       std::to_string(lab_.rails),
                       "--",
                       "weft"};
    command.insert(command.end(), weft.begin(), weft.end());
    return command;
  }

 private:
  MatrixLab lab_;
  std::string weft_;
};

std::string in_shell(const Command& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

// WEFT_FAULT for the rank whose messages are corrupted; a host has one rank.
std::string environment_of(const Trial& trial, const MatrixLab& lab) {
  for (const LabFault& fault : trial.faults) {
    if (fault.kind != "flipped-bit") continue;
    const auto host = std::find(lab.hosts.begin(), lab.hosts.end(), fault.host);
    return fmt::format("WEFT_FAULT=flip:rank={},every=40,min=1024 ", host - lab.hosts.begin());
  }
  return "";
}

}  // namespace

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_line(const Trial& trial, const FaultLab& lab, const Command& weft,
                       const std::string& log, int limit_s) {
  std::string line, beside;
  for (const LabFault& fault : trial.faults) {
    if (!find_fault_row(fault.kind)->in_mid_run) continue;
    line += fmt::format("{{ sleep {:.1f}; {}; }} & beside=\"$beside $!\"\n", trial.inject_after_s,
                        in_shell(lab.inject(fault)));
  }
  if (trial.busy_core) line += "taskset -c 0 sh -c 'while :; do :; done' & beside=\"$beside $!\"\n";
  line +=
      fmt::format("{}timeout -k 15 {} {} >{} 2>&1\ncode=$?\n", environment_of(trial, lab.shape()),
                  limit_s, in_shell(lab.ranks(weft)), quoted(log));
  line += "[ -z \"$beside\" ] || kill $beside 2>/dev/null\nwait\nexit $code\n";
  return line;
}

std::unique_ptr<FaultLab> commands_of_netlab(MatrixLab lab, std::string script, std::string weft,
                                             std::string lab_name) {
  return std::make_unique<Netlab>(std::move(lab), std::move(script), std::move(weft),
                                  std::move(lab_name));
}

std::unique_ptr<FaultLab> commands_of_softroce(MatrixLab lab, std::string weft) {
  return std::make_unique<Softroce>(std::move(lab), std::move(weft));
}

}  // namespace weft
