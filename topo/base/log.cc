// Creates weft's logger, with the level of WEFT_LOG.
#include "topo/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace weft {
namespace {

// Not registered with spdlog, so that the program's settings and loggers do not affect it.
spdlog::logger* make() {
  auto* logger = new spdlog::logger("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%H:%M:%S.%f %L %v");
  const char* text = std::getenv("WEFT_LOG");
  const std::string_view level = text ? text : "error";
  const spdlog::level::level_enum known = spdlog::level::from_str(std::string(level));
  if (known == spdlog::level::off && level != "off" && !level.empty()) {
    logger->warn("weft: WEFT_LOG={} is not one of off, error, warn, info, debug", level);
  }
  logger->set_level(known);
  return logger;
}

}  // namespace

spdlog::logger& log() {
  static spdlog::logger* const one = make();  // outlives every static destructor
  return *one;
}

}  // namespace weft
