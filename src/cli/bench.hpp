#pragma once

#include <CLI/CLI.hpp>

namespace truenorm::cli {

// Registers `truenorm bench`: the time of each operation beside that of a copy of the same bytes.
void add_bench(CLI::App& app);

}  // namespace truenorm::cli
