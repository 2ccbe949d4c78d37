// Random calls: every operation, type, size, option and kind of data; and any number of variations of one call, which
// must all give the same bits.
#pragma once

#include "support/arena.hpp"
#include "support/random.hpp"

namespace truenorm::test {

struct Size {
  std::int64_t m;
  std::int64_t n;
};
Size random_size(Rng& rng);

// A call on dense tensors with all outputs that it can have, filled with data. The backward's rstd and mean are those
// of the forward, so that its values are of the size that real ones have.
// `matrices`: the type of all of them, where it is not to be drawn for each.
tn_forward_args random_forward(Rng& rng, Arena& arena, Size size, tn_dtype matrices = TN_DTYPE_NONE);
tn_backward_args random_backward(Rng& rng, Arena& arena, Size size, tn_dtype matrices = TN_DTYPE_NONE);

struct Variation {
  bool may_drop_outputs = true;
  bool may_be_in_place = true;
  bool may_move = true;  // else every tensor is dense, from a 64-byte boundary on
};

// The same call with copies of its inputs in `arena`: other layouts and alignments, some outputs not asked for, some in
// place of inputs. Outputs are declared to the arena.
tn_forward_args vary(const tn_forward_args& args, Rng& rng, Arena& arena, Variation options = {});
tn_backward_args vary(const tn_backward_args& args, Rng& rng, Arena& arena, Variation options = {});

}  // namespace truenorm::test
