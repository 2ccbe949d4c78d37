#include "cuda/launch/forward.cuh"

template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::bf16, true>(const spec::ForwardCall&,
                                                                                      const Where&, const Device&);
template const char* truenorm::cuda::launch_forward<truenorm::spec::Type::bf16, false>(const spec::ForwardCall&,
                                                                                       const Where&, const Device&);
