#pragma once

#include <CLI/CLI.hpp>

namespace truenorm::cli {

// Registers `truenorm info`: what this build is and what this machine can run of it.
void add_info(CLI::App& app);

}  // namespace truenorm::cli
