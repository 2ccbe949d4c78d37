#pragma once

#include <CLI/CLI.hpp>

namespace truenorm::cli {

// Registers `truenorm run OP`: one operation, forward or backward, on tensors from files.
void add_run(CLI::App& app);

}  // namespace truenorm::cli
