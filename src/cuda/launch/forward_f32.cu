#include "cuda/launch/forward.cuh"

template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::f32, true>(const spec::ForwardCall&,
                                                                                     const Where&, const Device&);
