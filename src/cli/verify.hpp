#pragma once

#include <CLI/CLI.hpp>

namespace truenorm::cli {

// Registers `truenorm verify`: every operation, type and shape against the FP64 oracle.
void add_verify(CLI::App& app);

}  // namespace truenorm::cli
