/* mma.cuh - the matrix instructions every GPU since compute capability 8.0 has, and their loads.
 *
 * PROBLEM    c[16][8] += a[16][16] * b[16][8], bf16 factors, fp32 sums, by the 32 threads of a warp.
 *            Thread t holds, with g = t / 4 and u = t % 4 (two bf16 a register, the lower half first):
 *
 *                a[0]   row g      columns 2u, 2u + 1      c[0], c[1]   row g      columns 2u, 2u + 1
 *                a[1]   row g + 8  columns 2u, 2u + 1      c[2], c[3]   row g + 8  columns 2u, 2u + 1
 *                a[2]   row g      columns 2u + 8, 2u + 9
 *                a[3]   row g + 8  columns 2u + 8, 2u + 9  b[0]   rows 2u, 2u + 1      column g
 *                                                          b[1]   rows 2u + 8, 2u + 9  column g
 *
 *            gpu_ldmatrix loads that form. Matrix i is 8 rows of 16 bytes, whose addresses threads
 *            8i to 8i + 7 give; thread t gets in r[i] the two bf16 at row t / 4, columns 2(t % 4) and
 *            the next one. With _trans it gets the same places of the transposed matrix.
 *
 * NUMERICS   Products of two bf16 are exact in fp32. The sixteen of one instruction are added to c in
 *            an order and with a rounding of the hardware's: the same operands give the same bits on
 *            one GPU, and nothing more is promised.
 *
 * LIMITS     Rows of ldmatrix are aligned to 16 bytes, all 32 threads take part; x2 uses the
 *            addresses of threads 0 to 15 only.
 */
#ifndef MMLA_GPU_MMA_CUH
#define MMLA_GPU_MMA_CUH

#include <stdint.h>

#define GPU_DEVICE static __device__ __forceinline__

GPU_DEVICE void gpu_ldmatrix_x4(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

GPU_DEVICE void gpu_ldmatrix_x4_trans(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

GPU_DEVICE void gpu_ldmatrix_x2(uint32_t r[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

GPU_DEVICE void gpu_ldmatrix_x2_trans(uint32_t r[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

/* The way back, code for 9.0 and later: matrix i has its rows of 16 bytes where threads 8i to 8i + 7
 * say. */
GPU_DEVICE void gpu_stmatrix_x4(uint32_t address, const uint32_t r[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#endif
}

/* The same, each matrix transposed on the way: what a thread has at row g, columns 2u and 2u + 1 goes to
 * rows 2u and 2u + 1, column g. */
GPU_DEVICE void gpu_stmatrix_x4_trans(uint32_t address, const uint32_t r[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
#endif
}

GPU_DEVICE void gpu_stmatrix_x2_trans(uint32_t address, const uint32_t r[2]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                 "r"(r[0]), "r"(r[1])
                 : "memory");
#endif
}

/* m16n8k16, a by rows and b by columns. Not volatile: it has no effect but its result, and the
 * compiler may move it between the loads. */
GPU_DEVICE void gpu_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Transposes an 8 x 8 matrix of 16-bit elements: the thread held row t / 4, columns 2(t % 4) and the
 * next one, and gets the same places of the transposed matrix. */
GPU_DEVICE uint32_t gpu_transpose_b16(uint32_t pair) {
    uint32_t transposed;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
    return transposed;
}

/* 2^x within two units in the last place; results below 2^-126 become 0, of -inf too. */
GPU_DEVICE float gpu_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within a unit in the last place, without the branch of a division. */
GPU_DEVICE float gpu_rcp(float x) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#undef GPU_DEVICE

#endif
