/* truenorm: RMSNorm, residual-add + RMSNorm and LayerNorm, forward and backward, with the same bits everywhere.
 *
 * The C interface, which is the stable one. Four calls do the work and two say how much scratch they need:
 *
 *     tn_forward   tn_forward_workspace
 *     tn_backward  tn_backward_workspace
 *
 * Conventions, for every call:
 *   - N is the hidden size (the normalised dimension), M the number of rows. M may be 0; N is at least 1.
 *   - A tensor is a view: pointer, type, shape, strides. The library owns no tensor memory and allocates none per call.
 *   - A zeroed tn_tensor (dtype TN_DTYPE_NONE) is an absent one: an optional operand not given, an output not asked
 * for. What is not asked for is not computed.
 *   - Structs start with struct_size, which the caller sets to sizeof; later versions only append fields.
 *     A zeroed struct with struct_size set holds the defaults.
 *   - Every failure is a status, with a sentence in tn_error naming the argument, what it got and what it needs.
 *     Nothing is written to any output before all arguments have been checked.
 *   - No global mutable state: any number of threads may call at once.
 *
 * docs/numerics.md defines each result bit for bit.
 */
#ifndef TRUENORM_TRUENORM_H
#define TRUENORM_TRUENORM_H

#include <stddef.h>
#include <stdint.h>

#if defined(TN_STATIC)
#define TN_API
#elif defined(__GNUC__)
#define TN_API __attribute__((visibility("default")))
#else
#define TN_API
#endif

#ifdef __cplusplus
#define TN_NOEXCEPT noexcept
extern "C" {
#else
#define TN_NOEXCEPT
#endif

#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 1
#define TN_VERSION_PATCH 0

/* ---- Outcomes ------------------------------------------------------------------------------------------------- */

typedef int32_t tn_status;
enum {
  TN_OK = 0,
  TN_INVALID_ARGUMENT = 1, /* an argument is wrong; tn_error names it */
  TN_UNSUPPORTED = 2,      /* a valid request that this build or machine cannot serve (say, no such instruction set) */
  TN_WORKSPACE_TOO_SMALL = 3, /* the call needs more scratch than was passed; what *_workspace says is enough */
  TN_NO_DEVICE = 4,           /* the device named does not exist, or its backend is not in this build */
  TN_OUT_OF_MEMORY = 5,       /* a thread pool could not be made */
  TN_DEVICE_ERROR = 6         /* a launch failed */
};

/* Receives the sentence that explains a failure; always NUL-terminated, empty after TN_OK. Optional in every call. */
typedef struct tn_error {
  char message[512];
} tn_error;

/* "ok", "invalid argument", ...; never NULL. */
TN_API const char* tn_status_name(tn_status status) TN_NOEXCEPT;

/* ---- Tensors -------------------------------------------------------------------------------------------------- */

typedef int32_t tn_dtype;
enum {
  TN_DTYPE_NONE = 0, /* absent tensor */
  TN_F32 = 1,        /* IEEE binary32 */
  TN_F16 = 2,        /* IEEE binary16 */
  TN_BF16 = 3        /* bfloat16: the upper half of a binary32 */
};

/* "f32", "f16", "bf16", "none"; "invalid" for any other value. */
TN_API const char* tn_dtype_name(tn_dtype dtype) TN_NOEXCEPT;
/* Bytes per element: 4, 2, 2; 0 for absent or invalid. */
TN_API size_t tn_dtype_size(tn_dtype dtype) TN_NOEXCEPT;

#define TN_MAX_DIMS 3

/* A view. `shape` and `strides` hold `ndim` entries, strides in elements. Any alignment of `data` that is a multiple of
 * the element size is fine.
 *   Matrices (x, y, ...): 1 to 3 dimensions. The last is N, with stride 1 (any stride where N is 1). Those before it
 *     multiply to M and carry strides of their own, so that a [T, H, D] view into a fused QKV buffer is used in place.
 *     Different tensors of one call may split M differently. Rows of an input may overlap or repeat (stride 0, as after
 *     an expand); rows of an output may not. Negative strides are refused.
 *   Vectors (weight, bias and their gradients: N; mean, rstd: M, FP32): 1 dimension, stride 1. */
typedef struct tn_tensor {
  void* data;
  tn_dtype dtype;
  int32_t ndim;
  int64_t shape[TN_MAX_DIMS];
  int64_t strides[TN_MAX_DIMS];
} tn_tensor;

/* Dense views, for convenience: [rows, n] with row stride n, and [n]. */
TN_API tn_tensor tn_matrix(void* data, tn_dtype dtype, int64_t rows, int64_t n) TN_NOEXCEPT;
TN_API tn_tensor tn_vector(void* data, tn_dtype dtype, int64_t n) TN_NOEXCEPT;

/* ---- Where a call runs ---------------------------------------------------------------------------------------- */

typedef int32_t tn_device_type;
enum { TN_CPU = 0, TN_CUDA = 1 };

/* CPU instruction sets. All give the same bits; TN_ISA_AUTO takes the widest that this machine has. */
typedef int32_t tn_isa;
enum { TN_ISA_AUTO = 0, TN_ISA_SCALAR = 1, TN_ISA_AVX2 = 2, TN_ISA_AVX512 = 3, TN_ISA_NEON = 4 };

/* "auto", "scalar", "avx2", "avx512", "neon"; "invalid" for any other value. */
TN_API const char* tn_isa_name(tn_isa isa) TN_NOEXCEPT;
/* 1 when this build has code for `isa`, whether this machine runs it or not, else 0. */
TN_API int tn_isa_built(tn_isa isa) TN_NOEXCEPT;
/* 1 when this build has code for `isa` and this machine runs it, else 0. */
TN_API int tn_isa_available(tn_isa isa) TN_NOEXCEPT;

/* A pool of CPU threads, to be created once and passed to any number of calls. A pool that is busy with another call
 * does not block: the second call then runs on its own thread alone. The number of threads never changes a bit. */
typedef struct tn_threads tn_threads;

/* `count` threads work on a call, the calling thread being one of them; at least 1, at most 1024.
 * TN_INVALID_ARGUMENT for other counts, TN_OUT_OF_MEMORY when the system refuses a thread. */
TN_API tn_status tn_threads_create(int32_t count, tn_threads** out, tn_error* error) TN_NOEXCEPT;
/* NULL is allowed. No call may be using the pool. */
TN_API void tn_threads_destroy(tn_threads* threads) TN_NOEXCEPT;
/* The count given at creation; 1 for NULL. */
TN_API int32_t tn_threads_count(const tn_threads* threads) TN_NOEXCEPT;

typedef struct tn_exec {
  size_t struct_size;
  tn_device_type device;
  int32_t device_index; /* CUDA: the device ordinal. CPU: 0 */
  void* stream;         /* CUDA: a cudaStream_t (NULL is the default stream). CPU: NULL */
  tn_threads* threads;  /* CPU: NULL runs on the calling thread alone */
  tn_isa isa;           /* CPU: TN_ISA_AUTO, or one to force */
  /* CUDA: 1 lets this launch begin while the kernel before it in the stream is ending (programmatic dependent launch).
   * Until that one has finished it reads and writes nothing: it only asks for weight and bias to come to the L2 cache,
   * so that these may be that kernel's outputs too. If that kernel lets others begin early it must itself have waited
   * for those before it, as this library's do. A launch whose thread blocks wait for each other (the backward's, where
   * it makes weight gradients of many rows) waits for the kernel before it as usual, and only lets the next one begin.
   * Needs sm_90 or later, and is ignored elsewhere. CPU: 0. (Of 64 bits: without it, the struct is as it first was.) */
  int64_t programmatic;
} tn_exec;

/* Scratch. `data` needs no initial value and keeps nothing between calls. `counters` (CUDA backward only) must be zero
 * when first given and is left zero; launches that may run at the same time must not share it. Any alignment. */
typedef struct tn_workspace {
  void* data;
  size_t size; /* bytes */
  void* counters;
  size_t counters_size; /* bytes */
} tn_workspace;

/* Number of devices of a kind: 1 for TN_CPU; CUDA devices that can be used now, 0 where there is no driver. */
TN_API int32_t tn_device_count(tn_device_type type) TN_NOEXCEPT;

/* ---- The operations ------------------------------------------------------------------------------------------- */

typedef int32_t tn_op;
enum { TN_RMS_NORM = 1, TN_LAYER_NORM = 2 };

typedef int32_t tn_rounding;
enum {
  /* All arithmetic in FP32, one rounding, at the store ("gemma" casting mode). */
  TN_ROUND_ONCE = 0,
  /* x * rstd is rounded to x's type before it meets the weight, as Llama-family models define it. RMSNorm only.
   * With x in FP32 both are the same operation. */
  TN_ROUND_LLAMA = 1
};

/* Permissions for an output to be the very same view as an input (same address, type, shape and strides).
 * Any other overlap between an output and another tensor is refused. */
enum {
  TN_Y_OVER_X = 1,                   /* forward */
  TN_Y_OVER_RESIDUAL = 2,            /* forward; only when residual_out lies elsewhere or is not asked for */
  TN_RESIDUAL_OUT_OVER_X = 4,        /* forward */
  TN_RESIDUAL_OUT_OVER_RESIDUAL = 8, /* forward */
  TN_DX_OVER_DY = 16,                /* backward */
  TN_DX_OVER_DS = 32,                /* backward */
  TN_DRESIDUAL_OVER_DS = 64,         /* backward */
  TN_DX_OVER_X = 128                 /* backward: the saved x or s is not needed afterwards */
};

/* Forward. With s = x, or s = round(x + residual) to residual_out's type (or residual's, where residual_out is not
 * asked for), and w = weight + offset (1 without a weight), all in FP32:
 *   RMSNorm:   rstd = 1 / sqrt(sum(s^2) / N + eps)                         y = round(s * rstd * w + bias)
 *   LayerNorm: mean = sum(s) / N, rstd = 1 / sqrt(sum((s - mean)^2) / N + eps)
 *                                                                          y = round((s - mean) * rstd * w + bias)
 * (Zhang & Sennrich 2019, arXiv:1910.07467; Ba, Kiros & Hinton 2016, arXiv:1607.06450.)
 * At least one output must be asked for. */
typedef struct tn_forward_args {
  size_t struct_size;
  tn_op op;
  tn_rounding rounding;
  float eps;    /* >= 0 and finite; added to the mean square or variance */
  float offset; /* added to weight in FP32 (Gemma: 1); without a weight it has no effect */
  uint32_t in_place;
  tn_tensor x;            /* [M, N]  input */
  tn_tensor residual;     /* [M, N]  optional input */
  tn_tensor weight;       /* [N]     optional input */
  tn_tensor bias;         /* [N]     optional input */
  tn_tensor y;            /* [M, N]  optional output */
  tn_tensor residual_out; /* [M, N]  optional output s; needs residual */
  tn_tensor mean;         /* [M]     optional output, FP32, LayerNorm only */
  tn_tensor rstd;         /* [M]     optional output, FP32 */
} tn_forward_args;

/* Backward. `s` is what was normalised: the forward's x, or its residual_out. With xhat = s * rstd (RMSNorm) or
 * (s - mean) * rstd (LayerNorm), g = dy * (weight + offset), and c = sum(g * xhat) / N over the row:
 *   RMSNorm:   ds_total = rstd * (g - xhat * c) + ds
 *   LayerNorm: ds_total = rstd * (g - sum(g) / N - xhat * c) + ds
 *   dx = round(ds_total), dresidual = round(ds_total)
 *   dweight = round(sum over rows of dy * xhat), dbias = round(sum over rows of dy)
 * With TN_ROUND_LLAMA, dweight uses xhat rounded to x_dtype. Without dy (the output was not used) it counts as zero.
 * With M = 0 the weight gradients are zeros. At least one output must be asked for. dweight needs weight: a forward
 * without one has no such gradient, and a weight forgotten here would make dx another's. dbias needs no bias. */
typedef struct tn_backward_args {
  size_t struct_size;
  tn_op op;
  tn_rounding rounding;
  tn_dtype x_dtype; /* the forward x's type, for TN_ROUND_LLAMA; TN_DTYPE_NONE means s's type */
  float offset;
  uint32_t in_place;
  tn_tensor dy;        /* [M, N]  gradient of y; optional where ds is given */
  tn_tensor ds;        /* [M, N]  optional: gradient arriving at residual_out */
  tn_tensor s;         /* [M, N]  what was normalised; not read without dy */
  tn_tensor weight;    /* [N]     as in the forward */
  tn_tensor mean;      /* [M]     FP32, LayerNorm; from the forward */
  tn_tensor rstd;      /* [M]     FP32; from the forward */
  tn_tensor dx;        /* [M, N]  optional output */
  tn_tensor dresidual; /* [M, N]  optional output: the same gradient, rounded to the residual's type */
  tn_tensor dweight;   /* [N]     optional output */
  tn_tensor dbias;     /* [N]     optional output */
} tn_backward_args;

/* The scratch that the call with these arguments needs at most, wherever its operands lie. Pointers in `args` are not
 * read through and may be NULL; only types, shapes, strides and presence count. Sets out->size and out->counters_size,
 * leaves the pointers. The call itself takes less where that does: small ones on CUDA mostly need none. */
TN_API tn_status tn_forward_workspace(const tn_exec* exec, const tn_forward_args* args, tn_workspace* out,
                                      tn_error* error) TN_NOEXCEPT;
TN_API tn_status tn_backward_workspace(const tn_exec* exec, const tn_backward_args* args, tn_workspace* out,
                                       tn_error* error) TN_NOEXCEPT;

/* Runs the operation; on the CPU it has finished on return, on CUDA it has been enqueued on exec->stream.
 * exec NULL: the CPU, the calling thread. workspace NULL: allowed where the size needed is 0. */
TN_API tn_status tn_forward(const tn_exec* exec, const tn_forward_args* args, const tn_workspace* workspace,
                            tn_error* error) TN_NOEXCEPT;
TN_API tn_status tn_backward(const tn_exec* exec, const tn_backward_args* args, const tn_workspace* workspace,
                             tn_error* error) TN_NOEXCEPT;

/* ---- What this build is --------------------------------------------------------------------------------------- */

/* "0.1.0" */
TN_API const char* tn_version(void) TN_NOEXCEPT;
/* The version of the published order of every sum (docs/numerics.md). Equal versions give equal bits. 0: not frozen. */
TN_API int32_t tn_order_version(void) TN_NOEXCEPT;
/* 1 when the backend is compiled in (the CPU always is), else 0. */
TN_API int tn_has_backend(tn_device_type type) TN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
