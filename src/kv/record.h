/* record.h - one record, from numbers to bytes and back, in scalar code: the definition that vector
 * and GPU versions must match. */
#ifndef MMLA_KV_RECORD_H
#define MMLA_KV_RECORD_H

#include <stdint.h>

#include <megamla/layout.h>

/* Stores dims values (already rotated, already bf16-representable) as a record: its data row and
 * its scale row, whole. floor_scale: see mmla_scale_floor. */
void mmla_kv_record_encode(
    mmla_kv_format format, const float *x, int floor_scale, uint8_t *data, uint8_t *scale);

/* The dims values of a record: code times scale in fp32, then rounded to bf16 (exact but for
 * results that are subnormal in bf16 or overflow it). */
void mmla_kv_record_decode(mmla_kv_format format,
                           const uint8_t *data,
                           const uint8_t *scale,
                           float *x);

#endif
