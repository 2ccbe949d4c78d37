// Rows that start anywhere, or have part of a chunk; of any type.
#include "cuda/launch/backward.cuh"

template const char* truenorm::cuda::launch_backward<truenorm::spec::Type::f32, false>(const spec::BackwardCall&,
                                                                                       const Where&,
                                                                                       const BackwardPlan&, void*,
                                                                                       void*);
