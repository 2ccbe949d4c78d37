// Rows that start anywhere, or have part of a chunk; of any type.
#include "cuda/launch/forward.cuh"

template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::f32, false>(const spec::ForwardCall&,
                                                                                      const Where&, const Device&);
