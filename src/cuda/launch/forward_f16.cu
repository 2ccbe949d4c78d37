#include "cuda/launch/forward.cuh"

template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::f16, true>(const spec::ForwardCall&,
                                                                                     const Where&, const Device&);
template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::f16, false>(const spec::ForwardCall&,
                                                                                      const Where&, const Device&);
