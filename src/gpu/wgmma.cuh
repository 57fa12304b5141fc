/* wgmma.cuh - the matrix instructions of Hopper: a warpgroup multiplies tiles of shared memory.
 *
 * PROBLEM    d[64][N] += a[64][16] * b[16][N], bf16 or fp16 factors, fp32 sums, by 128 threads of
 *            four warps of which the first has a number divisible by four. Thread t of them holds,
 *            with w = t / 32, g = t % 32 / 4 and u = t % 4,
 *
 *                d[4 j], d[4 j + 1]        row 16 w + g        columns 8 j + 2 u, 8 j + 2 u + 1
 *                d[4 j + 2], d[4 j + 3]    row 16 w + g + 8    the same
 *
 *            and of an a that comes from registers, two factors in each,
 *
 *                a[0], a[2]                row 16 w + g        columns 2 u, 2 u + 1; 8 more
 *                a[1], a[3]                row 16 w + g + 8    the same
 *
 *            A use is: gpu_wgmma_begin, products, gpu_wgmma_commit, a wait, gpu_wgmma_use
 *            of the sums. Between the first and the last no thread touches the sums, nor writes
 *            what a product takes from registers.
 *
 * TILES      Both factors are tiles in shared memory that a descriptor names: columns of 64 bf16
 *            (128 bytes a row), whose rows lie 128 bytes apart and whose 16-byte chunks are moved
 *            to chunk ^ (row % 8); a column begins at a multiple of 1,024 bytes. A factor may have
 *            its 16 (the dim summed over) along the 128 bytes, gpu_wgmma_tile, or along the rows,
 *            gpu_wgmma_tile_across; or be gpu_wgmma_matrices.
 *
 * NUMERICS   As in mma.cuh.
 *
 * LIMITS     Code compiled for 9.0a. What generic instructions wrote to a tile is seen after
 *            gpu_fence_async by the writer and a barrier.
 */
#ifndef MMLA_GPU_WGMMA_CUH
#define MMLA_GPU_WGMMA_CUH

#include <stdint.h>

#define GPU_DEVICE static __device__ __forceinline__

/* Whether this pass of the compiler makes code that has these instructions. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GPU_HAS_WGMMA 1
#else
#define GPU_HAS_WGMMA 0
#endif

enum {
    GPU_WGMMA_DEPTH = 16,                           /* summed over by one instruction */
    GPU_WGMMA_ROW_BYTES = 128,                      /* of a column of a tile */
    GPU_WGMMA_EIGHT_ROWS = 8 * GPU_WGMMA_ROW_BYTES, /* the unit the swizzle repeats with */
    GPU_WGMMA_STEP = GPU_WGMMA_DEPTH * 2 >> 4,      /* of a tile's descriptor, along it */
    GPU_WGMMA_STEP_ACROSS = GPU_WGMMA_DEPTH * GPU_WGMMA_ROW_BYTES >> 4 /* across it */
};

/* Descriptor: address, two strides (in units of 16 bytes), 128-byte swizzle. */
GPU_DEVICE uint64_t gpu_wgmma_descriptor(uint32_t smem, uint32_t leading, uint32_t stride) {
    return (uint64_t)1 << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)(leading >> 4) << 16 |
           (smem & 0x3FFFFu) >> 4;
}

/* The dim summed over lies along a row: groups of eight rows follow each other. Steps of 16 add
 * GPU_WGMMA_STEP, within the 64 of a column. */
GPU_DEVICE uint64_t gpu_wgmma_tile(uint32_t smem) {
    return gpu_wgmma_descriptor(smem, 16, GPU_WGMMA_EIGHT_ROWS);
}

/* The same with so many bytes from one group of eight rows to the next, a multiple of 1,024: what lies between
 * them may be other tiles' groups. */
GPU_DEVICE uint64_t gpu_wgmma_tile_apart(uint32_t smem, uint32_t bytes) {
    return gpu_wgmma_descriptor(smem, 16, bytes);
}

/* The dim summed over goes down the rows; the other runs along a row of 64 and then into the next
 * column, column_bytes later. Steps of 16 rows add GPU_WGMMA_STEP_ACROSS. */
GPU_DEVICE uint64_t gpu_wgmma_tile_across(uint32_t smem, uint32_t column_bytes) {
    return gpu_wgmma_descriptor(smem, column_bytes, GPU_WGMMA_EIGHT_ROWS);
}

/* A factor without swizzle, the dim summed over along its rows: matrices of 8 x 8, 128 bytes each,
 * that lie `step` bytes apart along the rows and `stride` bytes from one group of eight rows to the
 * next. */
GPU_DEVICE uint64_t gpu_wgmma_matrices(uint32_t smem, uint32_t step, uint32_t stride) {
    return (uint64_t)(stride >> 4) << 32 | (uint64_t)(step >> 4) << 16 | (smem & 0x3FFFFu) >> 4;
}

/* What the threads wrote to shared memory before is seen by matrix instructions and bulk copies
 * after a barrier. */
GPU_DEVICE void gpu_fence_async(void) {
#if GPU_HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Before the first product, and whenever other instructions wrote the sums. */
GPU_DEVICE void gpu_wgmma_begin(void) {
#if GPU_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

GPU_DEVICE void gpu_wgmma_commit(void) {
#if GPU_HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Until all committed products are done. */
GPU_DEVICE void gpu_wgmma_wait_all(void) {
#if GPU_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

/* Until all committed products but those of the newest gpu_wgmma_commit are done. */
GPU_DEVICE void gpu_wgmma_wait_but_newest(void) {
#if GPU_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
}

/* Keeps what reads the sums behind the wait. */
GPU_DEVICE void gpu_wgmma_use(float *d, const int32_t n) {
#pragma unroll
    for (int32_t i = 0; i < n; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

/* Registers of each thread of a warpgroup from here on: more, or fewer for others to have more. */
#if GPU_HAS_WGMMA
#define GPU_REGISTERS_RAISE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)(n)))
#define GPU_REGISTERS_LOWER(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)(n)))
#else
#define GPU_REGISTERS_RAISE(n) (void)(n)
#define GPU_REGISTERS_LOWER(n) (void)(n)
#endif

/* Operands of an asm statement: the sums d[i] .. d[i + 7], and so on. */
#define D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define D8(i) D4(i), D4((i) + 4)
#define D16(i) D8(i), D8((i) + 8)
#define D24(i) D16(i), D8((i) + 16)
#define D32(i) D16(i), D16((i) + 16)
#define D64(i) D32(i), D32((i) + 32)
#define D128(i) D64(i), D64((i) + 64)
/* clang-format off */
#define N4 "%0, %1, %2, %3"
#define N8 N4 ", %4, %5, %6, %7"
#define N16 N8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define N24 N16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define N32 N24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define N64                                                                                 \
    N32 ", "                                                                                \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define N128 N64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/* clang-format on */

/* d[64][48] = a b, added to d when `add`; both tiles have the dim summed over along their rows. */
GPU_DEVICE void gpu_wgmma_n48(float d[24], uint64_t a, uint64_t b, bool add) {
#if GPU_HAS_WGMMA
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %26, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {" N24
                 "}, %24, %25, p, 1, 1, 0, 0;\n"
                 "}"
                 : D24(0)
                 : "l"(a), "l"(b), "r"((int32_t)add));
#endif
}

/* d[64][128] += a b; b has the dim summed over down its rows. */
GPU_DEVICE void gpu_wgmma_n128_across(float d[64], uint64_t a, uint64_t b) {
#if GPU_HAS_WGMMA
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" N64
                 "}, %64, %65, 1, 1, 1, 0, 1;"
                 : D64(0)
                 : "l"(a), "l"(b));
#endif
}

/* d[64][n] = a b, added to d when `more`: n, a constant, is 8 or 16; b has the dim summed over along
 * its rows, and so has a, or, in gpu_wgmma_few_across, down its rows. */
#if GPU_HAS_WGMMA
#define PRODUCT(n, sums, list, tile_a, tile_b, add, ACROSS)                                    \
    asm volatile("{\n"                                                                         \
                 ".reg .pred p;\n"                                                             \
                 "setp.ne.b32 p, " add ", 0;\n"                                                \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" list "}, " tile_a \
                 ", " tile_b ", p, 1, 1, " ACROSS ", 0;\n"                                     \
                 "}"                                                                           \
                 : sums                                                                        \
                 : "l"(a), "l"(b), "r"((int32_t)more))
#else
#define PRODUCT(n, sums, list, tile_a, tile_b, add, ACROSS) (void)0
#endif
GPU_DEVICE void gpu_wgmma_few(float *d, uint64_t a, uint64_t b, const bool more, const int32_t n) {
    if (n == 8) {
        PRODUCT("8", D4(0), N4, "%4", "%5", "%6", "0");
    } else {
        PRODUCT("16", D8(0), N8, "%8", "%9", "%10", "0");
    }
}

GPU_DEVICE void
gpu_wgmma_few_across(float *d, uint64_t a, uint64_t b, const bool more, const int32_t n) {
    if (n == 8) {
        PRODUCT("8", D4(0), N4, "%4", "%5", "%6", "1");
    } else {
        PRODUCT("16", D8(0), N8, "%8", "%9", "%10", "1");
    }
}

#undef PRODUCT

/* d[64][n] = a b, added to d when `more`: fp16 factors, a from registers, b a tile with the dim
 * summed over along its rows. n is one of the cases below, a constant, so that the switch folds
 * away. */
#if GPU_HAS_WGMMA
#define PRODUCT(n, sums, list, a0, a1, a2, a3, tile, add)                                         \
    asm volatile("{\n"                                                                            \
                 ".reg .pred p;\n"                                                                \
                 "setp.ne.b32 p, " add ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, {" a0 ", " a1 \
                 ", " a2 ", " a3 "}, " tile ", p, 1, 1, 0;\n"                                     \
                 "}"                                                                              \
                 : sums                                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int32_t)more))
#else
#define PRODUCT(n, sums, list, a0, a1, a2, a3, tile, add) (void)0
#endif
GPU_DEVICE void
gpu_wgmma_f16(float *d, const uint32_t a[4], uint64_t b, const bool more, const int32_t n) {
    switch (n) {
    case 8:
        PRODUCT("8", D4(0), N4, "%4", "%5", "%6", "%7", "%8", "%9");
        break;
    case 16:
        PRODUCT("16", D8(0), N8, "%8", "%9", "%10", "%11", "%12", "%13");
        break;
    case 32:
        PRODUCT("32", D16(0), N16, "%16", "%17", "%18", "%19", "%20", "%21");
        break;
    case 64:
        PRODUCT("64", D32(0), N32, "%32", "%33", "%34", "%35", "%36", "%37");
        break;
    case 128:
        PRODUCT("128", D64(0), N64, "%64", "%65", "%66", "%67", "%68", "%69");
        break;
    default: /* 256 */
        PRODUCT("256", D128(0), N128, "%128", "%129", "%130", "%131", "%132", "%133");
        break;
    }
}

#undef PRODUCT
#undef N128
#undef N64
#undef N32
#undef N24
#undef N16
#undef N8
#undef N4
#undef D128
#undef D64
#undef D32
#undef D24
#undef D16
#undef D8
#undef D4
#undef GPU_DEVICE

#endif
