// The plain copy that an operation's time on a CUDA device is measured against, as floor.hpp is on the CPU.
#pragma once

#include <array>

#include "cli/copy_set.hpp"
#include "cli/cuda/timing.hpp"

namespace truenorm::cli {

// How many vectors of 16 bytes a thread of the copy may have under way at once. Which is the fastest depends on the
// size, so all of them compete.
inline constexpr std::array<int, 3> kCopyVectors{1, 2, 4};

// Enqueues one pass over device memory: one to three reads and one or two writes, all as large, aligned to 16 bytes and
// with room up to the next multiple of 16 bytes. Each output is the exclusive or of the inputs.
void copy_on_stream(const CopySet& set, int vectors, const DeviceStream& stream);

}  // namespace truenorm::cli
