/* inline.h - functions shared by host and device: one definition, so one meaning on both. */
#ifndef MMLA_BASE_INLINE_H
#define MMLA_BASE_INLINE_H

/* In place of `static inline`: nvcc compiles the function for the GPU as well. */
#if defined(__CUDACC__)
#define MMLA_INLINE static inline __host__ __device__
#else
#define MMLA_INLINE static inline
#endif

#endif
