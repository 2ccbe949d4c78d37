#include "cuda/launch/backward.cuh"

template const char* truenorm::cuda::launch_backward<truenorm::spec::Type::bf16, true>(const spec::BackwardCall&,
                                                                                       const Where&,
                                                                                       const BackwardPlan&, void*,
                                                                                       void*);
